"""The procedures of a host that claim instances of orchestrations, store their journals and end them."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from postroom.messagebox.connection import Connection, read_blocking, read_value
from postroom.messagebox.queues import ClaimedMessage, QueueTask, format_array, to_storable_text

#: The number of messages of one instance that are in memory at a time: its share of the queue in memory.
MESSAGES_AT_A_TIME = 100


class ClaimedInstance(NamedTuple):
    """An instance that a host instance works on. A tuple, as a claimed message is.

    ``carried`` is the state that its last ``continue_with`` passed on, as JSON. ``journals`` is the number of journals
    before this one. Timers that were due at ``timers_until`` may fire. None: a message that came before is not read
    yet. ``process_deaths`` is the number of host instances that died, or ran out of memory, while they had it, since
    its last persistence point."""

    claim_id: uuid.UUID
    instance_id: uuid.UUID
    service_id: uuid.UUID
    journal_length: int
    journals: int
    carried: str | None
    timers_until: datetime | None
    process_deaths: int = 0

    @property
    def is_suspected(self) -> bool:
        """True if it may have killed host instances. A host instance claims only one such instance at a time."""
        return self.process_deaths >= 2


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """What is stored of a claimed instance at a persistence point. ``journal_length`` is that before it."""

    claimed: ClaimedInstance
    journal_length: int
    turns: Sequence[dict[str, Any]] = ()
    consumed: Sequence[int] = ()
    wake_at: datetime | None = None
    is_released: bool = False
    suspension: str | None = None
    """The reason why the instance suspends itself."""


class HostOrchestrations:
    """The procedures of the host ``name`` for instances. Calls run on the caller's connection."""

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
        """Claim up to ``limit`` instances of these orchestrations that are ready.

        The claim also moves messages from the work queue to their instances, and creates the instances of those that
        activate one."""
        return read_blocking(
            connection,
            f"SELECT * FROM claim_orchestrations_{self._host}(%s, %s, %s, %s, coalesce(%s, now()))",
            lambda row: ClaimedInstance(claim_id, *row),
            claim_id,
            host_instance,
            limit,
            format_array(services),
            now,
        )

    def release(
        self,
        connection: Connection,
        claim_id: uuid.UUID,
        instance_ids: Sequence[uuid.UUID] | None = None,
        *,
        is_out_of_memory: bool = False,
    ) -> None:
        """Release the instances of a claim, or some of them. They are ready again. With ``is_out_of_memory`` the
        release counts as the death of a process. After five of these an instance is suspended."""
        read_value(
            connection,
            f"SELECT release_orchestrations_{self._host}(%s, %s::uuid[], %s)",
            claim_id,
            None if instance_ids is None else list(instance_ids),
            is_out_of_memory,
        )

    def release_instances(
        self, connection: Connection, instances: Iterable[ClaimedInstance], *, is_out_of_memory: bool = False
    ) -> None:
        """Release instances of any claims, so that they continue from their journals."""
        by_claim: dict[uuid.UUID, list[uuid.UUID]] = defaultdict(list)
        for claimed in instances:
            by_claim[claimed.claim_id].append(claimed.instance_id)
        for claim_id, instance_ids in by_claim.items():
            self.release(connection, claim_id, instance_ids, is_out_of_memory=is_out_of_memory)

    def read_messages(self, connection: Connection, claim_id: uuid.UUID) -> list[ClaimedMessage]:
        """Return the first messages that the instances of a claim have not received, at most MESSAGES_AT_A_TIME for
        each."""
        return self._read_messages(connection, claim_id, None, False, 0, MESSAGES_AT_A_TIME)

    def read_more_messages(
        self, connection: Connection, claimed: ClaimedInstance, *, after: int
    ) -> list[ClaimedMessage]:
        """Return the next messages that an instance has not received, with numbers above ``after``."""
        return self._read_messages(connection, claimed.claim_id, claimed.instance_id, False, after, MESSAGES_AT_A_TIME)

    def read_received_messages(self, connection: Connection, claimed: ClaimedInstance) -> list[ClaimedMessage]:
        """Return the messages that an instance has received, which its journal refers to."""
        return self._read_messages(connection, claimed.claim_id, claimed.instance_id, True, 0, None)

    def _read_messages(self, connection: Connection, claim_id: uuid.UUID, *arguments: object) -> list[ClaimedMessage]:
        def make_row(row: Sequence[Any]) -> ClaimedMessage:
            seq, message_id, service, instance, *rest = row
            return ClaimedMessage(claim_id, 0, seq, message_id, service, instance, QueueTask.JOIN_INSTANCE, 0, *rest)

        command = f"SELECT * FROM read_orchestration_messages_{self._host}(%s, %s, %s, %s, %s)"
        return read_blocking(connection, command, make_row, claim_id, *arguments)

    def read_journal(self, connection: Connection, claimed: ClaimedInstance) -> list[dict[str, Any]]:
        """Return the stored turns of an instance."""
        rows = connection.execute(
            f"SELECT turns FROM read_orchestration_journal_{self._host}(%s, %s)",
            (claimed.claim_id, claimed.instance_id),
        )
        return [turn for (turns,) in rows for turn in json.loads(turns)]

    def lock(self, connection: Connection, instance_ids: Sequence[uuid.UUID]) -> None:
        """Lock instances, before several of ``persist``, ``restart`` and ``end`` in one transaction."""
        connection.execute(f"SELECT lock_orchestrations_{self._host}(%s::uuid[])", (list(instance_ids),))

    def persist(self, connection: Connection, entries: Sequence[JournalEntry]) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
        """Append to the journals of different instances, in one statement. Return the ids of the instances that were
        stored, which no other host instance has taken over, and the ids of the stored instances that an operator wants
        to suspend or terminate, which are released."""
        entries = sorted(entries, key=_get_lock_order)
        consumed = [
            (entry.claimed.instance_id, seq, entry.journal_length + 1) for entry in entries for seq in entry.consumed
        ]
        row = connection.execute(
            f"SELECT * FROM persist_orchestrations_{self._host}(%s::uuid[], %s::uuid[], %s::int[], %s::text[],"
            " %s::timestamptz[], %s::boolean[], %s::text[], %s::uuid[], %s::bigint[], %s::int[])",
            (
                *_format_claims(entries),
                [json.dumps(entry.turns) if entry.turns else None for entry in entries],
                [entry.wake_at for entry in entries],
                [entry.is_released for entry in entries],
                [entry.suspension and to_storable_text(entry.suspension) for entry in entries],
                *([row[column] for row in consumed] for column in range(3)),
            ),
        ).fetchone()
        assert row is not None
        stored, interrupted = row
        return set(stored), set(interrupted)

    def answer_requests(self, connection: Connection, requests: Sequence[tuple[uuid.UUID, uuid.UUID]]) -> None:
        """Note that instances have answered requests, or sent them on, so that the callers get no fault. ``requests``
        are pairs of an instance and a message that it has received."""
        arguments = [[str(one[column]) for one in requests] for column in range(2)]
        connection.execute(f"SELECT answer_requests_{self._host}(%s::uuid[], %s::uuid[])", arguments)

    def fault_requests(
        self, connection: Connection, entry: JournalEntry, requests: Sequence[uuid.UUID], *, what: str
    ) -> None:
        """Give a fault to the callers of requests that an instance has received and will not answer. ``what`` says why,
        after the name of the orchestration. Call ``lock`` before, and then store its persistence point."""
        claimed = entry.claimed
        arguments = (claimed.instance_id, claimed.claim_id, entry.journal_length, list(requests), what)
        connection.execute(f"SELECT fault_requests_{self._host}(%s, %s, %s, %s::uuid[], %s)", arguments)

    def restart(self, connection: Connection, entry: JournalEntry, *, carried: Any) -> bool:
        """Let an instance continue with a fresh journal. Return False if another host instance has it."""
        return bool(
            read_value(
                connection,
                f"SELECT restart_orchestration_{self._host}(%s, %s, %s, %s::bigint[], %s::json)",
                entry.claimed.instance_id,
                entry.claimed.claim_id,
                entry.journal_length,
                list(entry.consumed),
                json.dumps(carried),
            )
        )

    def end(self, connection: Connection, entries: Sequence[JournalEntry]) -> set[uuid.UUID]:
        """End instances, in one statement. Messages of a convoy that they have not received activate the next instance,
        and others are suspended. Return the ids of the instances that have ended, which no other host instance has
        taken over."""
        entries = sorted(entries, key=_get_lock_order)
        ended = read_value(
            connection,
            f"SELECT end_orchestrations_{self._host}(%s::uuid[], %s::uuid[], %s::int[], %s::bigint[])",
            *_format_claims(entries),
            format_array(seq for entry in entries for seq in entry.consumed),
        )
        return set(ended)

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


def _get_lock_order(entry: JournalEntry) -> int:
    """Return the key that sorts instances as PostgreSQL sorts their ids."""
    return entry.claimed.instance_id.int


def _format_claims(entries: Sequence[JournalEntry]) -> tuple[str, str, str]:
    """Return the arrays that identify claimed instances: their ids, those of their claims, and the lengths of their
    journals."""
    return (
        format_array(entry.claimed.instance_id.hex for entry in entries),
        format_array(entry.claimed.claim_id.hex for entry in entries),
        format_array(entry.journal_length for entry in entries),
    )
