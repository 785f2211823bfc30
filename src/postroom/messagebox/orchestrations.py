"""Orchestrations in the MessageBox: which there are, and the procedures of a host that claim and store instances."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any

from postroom.errors import ClaimLost
from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.queues import ClaimedMessage, to_storable_text
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.copy_rows import QueueTask


class OrchestrationState(IntEnum):
    """The states of an orchestration, with BizTalk's codes (ORS-01). A stopped one is enlisted."""

    UNBOUND = 1
    BOUND = 2
    STOPPED = 3
    STARTED = 4


@dataclass(frozen=True, kw_only=True)
class DeployedOrchestration:
    """An orchestration in one version, as it is deployed. ``correlations`` has the keys of each correlation."""

    service_id: uuid.UUID
    application_id: uuid.UUID
    host_id: int
    name: str
    version: int
    file: str
    code: str
    filter: str | None
    convoy: tuple[str, ...]
    correlations: tuple[tuple[str, ...], ...]
    priority: int
    is_newest: bool
    state: OrchestrationState
    subscription_id: int | None


@dataclass(frozen=True, kw_only=True)
class ClaimedInstance:
    """An instance that a host instance works on."""

    claim_id: uuid.UUID
    instance_id: uuid.UUID
    service_id: uuid.UUID
    journal_length: int
    journals: int
    carried: Any
    """What it has carried over from the last of its ``journals`` before, as JSON values."""


def read_orchestrations(connection: Connection, *, host_id: int | None = None) -> list[DeployedOrchestration]:
    """Return the deployed orchestrations, all or those of a host."""
    rows = connection.execute(statement("queries/read_orchestrations"), {"host_id": host_id})
    return [_build_deployed(*row) for row in rows]


def _build_deployed(
    service_id: uuid.UUID, application_id: uuid.UUID, host_id: int, name: str, version: int, file: str, *rest: Any
) -> DeployedOrchestration:
    code, filter, convoy, correlations, priority, is_newest, state, subscription_id = rest
    return DeployedOrchestration(
        service_id=service_id,
        application_id=application_id,
        host_id=host_id,
        name=name,
        version=version,
        file=file,
        code=code,
        filter=filter,
        convoy=tuple(convoy),
        correlations=tuple(tuple(keys) for keys in correlations),
        priority=priority,
        is_newest=is_newest,
        state=OrchestrationState(state),
        subscription_id=subscription_id,
    )


def count_orchestration_instances(connection: Connection, application: str) -> dict[uuid.UUID, int]:
    """Return the number of instances of each orchestration of an application, by its id. Messages that would activate
    an instance count too."""
    return dict(connection.execute(statement("queries/count_orchestration_instances"), (application,)).fetchall())


class HostOrchestrations:
    """The procedures of the host ``name`` for instances. Every call is one statement on the caller's connection."""

    def __init__(self, name: str) -> None:
        self._host = name.lower()

    def claim(
        self,
        connection: Connection,
        *,
        claim_id: uuid.UUID,
        host_instance: int,
        limit: int,
        services: Sequence[uuid.UUID],
        now: datetime | None = None,
    ) -> list[ClaimedInstance]:
        """Claim up to ``limit`` instances of these orchestrations that are ready."""
        rows = connection.execute(
            f"SELECT * FROM claim_orchestrations_{self._host}(%s, %s, %s, %s, coalesce(%s, now()))",
            (claim_id, host_instance, limit, list(services), now),
        )
        return [
            ClaimedInstance(
                claim_id=claim_id,
                instance_id=instance_id,
                service_id=service_id,
                journal_length=length,
                journals=journals,
                carried=None if carried is None else json.loads(carried),
            )
            for instance_id, service_id, length, journals, carried in rows
        ]

    def release(self, connection: Connection, claim_id: uuid.UUID) -> None:
        """Release the instances of a claim."""
        read_value(connection, f"SELECT release_orchestrations_{self._host}(%s)", claim_id)

    def read_messages(
        self, connection: Connection, claim_id: uuid.UUID, instance_id: uuid.UUID | None = None
    ) -> list[ClaimedMessage]:
        """Return the messages that the instances of a claim have not received, or all messages of one instance."""
        rows = connection.execute(
            f"SELECT * FROM read_orchestration_messages_{self._host}(%s, %s)", (claim_id, instance_id), binary=True
        )
        return [
            ClaimedMessage(claim_id, 0, seq, message_id, service, instance, QueueTask.JOIN_INSTANCE, 0, *rest)
            for seq, message_id, service, instance, *rest in rows
        ]

    def read_journal(self, connection: Connection, claimed: ClaimedInstance) -> list[dict[str, Any]]:
        """Return the stored turns of an instance."""
        rows = connection.execute(
            f"SELECT turns FROM read_orchestration_journal_{self._host}(%s, %s)",
            (claimed.claim_id, claimed.instance_id),
        )
        return [turn for (turns,) in rows for turn in json.loads(turns)]

    def persist(
        self,
        connection: Connection,
        claimed: ClaimedInstance,
        *,
        journal_length: int,
        turns: Sequence[dict[str, Any]],
        consumed: Sequence[int],
        wake_at: datetime | None,
        release: bool,
    ) -> None:
        """Append turns to the journal. Raise ClaimLost if another host instance has the instance."""
        stored = read_value(
            connection,
            f"SELECT persist_orchestration_{self._host}(%s, %s, %s, %s::jsonb, %s::bigint[], %s, %s)",
            claimed.instance_id,
            claimed.claim_id,
            journal_length,
            json.dumps(turns) if turns else None,
            list(consumed),
            wake_at,
            release,
        )
        if not stored:
            raise _make_claim_lost(claimed)

    def restart(
        self,
        connection: Connection,
        claimed: ClaimedInstance,
        *,
        journal_length: int,
        consumed: Sequence[int],
        carried: Any,
    ) -> None:
        """Let an instance go on with a fresh journal. Raise ClaimLost if another host instance has the instance."""
        restarted = read_value(
            connection,
            f"SELECT restart_orchestration_{self._host}(%s, %s, %s, %s::bigint[], %s::jsonb)",
            claimed.instance_id,
            claimed.claim_id,
            journal_length,
            list(consumed),
            json.dumps(carried),
        )
        if not restarted:
            raise _make_claim_lost(claimed)

    def end(
        self, connection: Connection, claimed: ClaimedInstance, *, journal_length: int, consumed: Sequence[int]
    ) -> int:
        """End an instance. Return the number of messages that it has not received, which are suspended. Raise ClaimLost
        if another host instance has the instance."""
        unconsumed = read_value(
            connection,
            f"SELECT end_orchestration_{self._host}(%s, %s, %s, %s::bigint[])",
            claimed.instance_id,
            claimed.claim_id,
            journal_length,
            list(consumed),
        )
        if unconsumed < 0:
            raise _make_claim_lost(claimed)
        return int(unconsumed)

    def suspend(self, connection: Connection, claimed: ClaimedInstance, *, code: str, description: str) -> bool:
        """Suspend an instance with an error. Return False if another host instance has it."""
        return bool(
            read_value(
                connection,
                f"SELECT suspend_orchestration_{self._host}(%s, %s, %s, %s)",
                claimed.instance_id,
                claimed.claim_id,
                code,
                to_storable_text(description),
            )
        )


def _make_claim_lost(claimed: ClaimedInstance) -> ClaimLost:
    return ClaimLost(f"Another host instance works on the orchestration instance {claimed.instance_id}.")
