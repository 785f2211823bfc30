"""Orchestrations in the MessageBox: which there are, and the procedures of a host that claim and store instances."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from postroom.messagebox.configuration.services import (
    Service,
    ServiceState,
    StoredState,
    read_states,
    store_service,
)
from postroom.messagebox.configuration.services import (
    format_name as format_name,
)
from postroom.messagebox.connection import Connection, read_blocking, read_records, read_value
from postroom.messagebox.queues import ClaimedMessage, QueueTask, format_array, to_storable_text
from postroom.messagebox.statements import statement

#: The number of messages of one instance that are in memory at a time: its share of the queue in memory.
MESSAGES_AT_A_TIME = 100


@dataclass(frozen=True, kw_only=True)
class DeployedOrchestration:
    """An orchestration in one version, as it is deployed."""

    service_id: uuid.UUID
    application_id: uuid.UUID
    host_id: int
    definition: dict[str, Any]
    """The stored definition."""
    is_newest: bool
    state: ServiceState
    subscription_id: int | None

    @property
    def name(self) -> str:
        return str(self.definition["name"])

    @property
    def version(self) -> int:
        return int(self.definition["version"])

    @property
    def file(self) -> str:
        return str(self.definition["file"])

    @property
    def code(self) -> str:
        return str(self.definition["code"])

    @property
    def filter(self) -> str | None:
        text: str | None = self.definition["filter"]
        return text

    @property
    def is_ordered(self) -> bool:
        return bool(self.definition["ordered"])

    @property
    def priority(self) -> int:
        return int(self.definition["priority"])

    @property
    def logical_ports(self) -> dict[str, list[str]]:
        """The logical ports that its code names, each with its calls: send, deliver or request."""
        found: dict[str, list[str]] = {}
        for name, call in self.definition.get("ports", ()):
            found.setdefault(name, []).append(call)
        return found

    @property
    def declared_bindings(self) -> dict[str, str | None]:
        """The names of the send ports and groups that the application binds logical ports to. None: direct."""
        return dict(self.definition.get("bindings", ()))

    @property
    def convoy(self) -> list[str]:
        """The keys of the properties of its convoy."""
        return [prop["key"] for prop in self.definition["convoy"]]

    @property
    def correlations(self) -> list[list[str]]:
        """The keys of the properties of each correlation."""
        return [[prop["key"] for prop in properties] for properties in self.definition["correlations"]]


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


def read_orchestrations(connection: Connection, *, host_id: int | None = None) -> list[DeployedOrchestration]:
    """Return the deployed orchestrations, all or those of a host."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("queries/read_orchestrations"), {"host_id": host_id}).fetchall()
    states = read_states(connection, [row["service_id"] for row in rows])
    return [DeployedOrchestration(**row, **states.get(row["service_id"], StoredState())._asdict()) for row in rows]


def count_orchestration_instances(connection: Connection, application: str) -> dict[uuid.UUID, int]:
    """Return the number of instances of each orchestration of an application, by its id. Messages that would activate
    an instance count too."""
    return dict(connection.execute(statement("queries/count_orchestration_instances"), (application,)).fetchall())


def read_instance_hosts(connection: Connection, services: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return the host of the instances of each orchestration that has some."""
    return dict(connection.execute(statement("queries/read_instance_hosts"), (list(services),)).fetchall())


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
        """End instances, in one statement. The messages that they have not received are suspended. Return the ids of
        the instances that have ended, which no other host instance has taken over."""
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


@dataclass(frozen=True, kw_only=True)
class OrchestrationUse:
    """The application and the host of a version of an orchestration, and the number of its instances and messages.
    ``problem`` is why its host does not load its file."""

    service_id: uuid.UUID
    application: str
    host: str
    instances: int
    waiting_instances: int
    suspended_instances: int
    queued_messages: int
    suspended_messages: int
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class WaitingOrchestration:
    """What an instance of the orchestration ``service_id`` waits for: the next timer, and messages."""

    journals: int
    wake_at: datetime | None
    unreceived: int
    service_id: uuid.UUID
    can_read_journal: bool
    """Operators may not read it."""


@dataclass(frozen=True, kw_only=True)
class StoredJournal:
    """The journal of an instance. ``carried`` is what it has carried over from the last of ``journals`` before."""

    orchestration: str
    version: int
    journals: int
    carried: Any
    entries: Sequence[Sequence[dict[str, Any]]]

    @property
    def turns(self) -> list[dict[str, Any]]:
        return [turn for entry in self.entries for turn in entry]


def list_uses(connection: Connection, *, application: str | None = None) -> list[OrchestrationUse]:
    """Count the instances and messages of the orchestrations of one application, or of all, by name and version."""
    conditions = {"application": application}
    return read_records(connection, OrchestrationUse, statement("queries/list_orchestrations"), conditions)


def read_waiting(connection: Connection, instance_id: uuid.UUID) -> WaitingOrchestration | None:
    """Return what an instance waits for. Return None if it is no instance of an orchestration."""
    query = statement("queries/read_orchestration_instance")
    return next(iter(read_records(connection, WaitingOrchestration, query, (instance_id,))), None)


def read_stored_journal(connection: Connection, instance_id: uuid.UUID) -> StoredJournal | None:
    """Return the journal of an instance. Return None if it has none, because it has not started or has ended."""
    query = statement("queries/read_saved_journal")
    return next(iter(read_records(connection, StoredJournal, query, (instance_id,))), None)


def list_replayable_instances(
    connection: Connection, service_id: uuid.UUID, *, limit: int
) -> tuple[list[uuid.UUID], int]:
    """Return the ids of instances of an orchestration that have a journal, at most ``limit``, and the number of all."""
    rows = connection.execute(statement("queries/list_replayable_instances"), (service_id, limit)).fetchall()
    return [instance_id for instance_id, _ in rows], rows[0][1] if rows else 0


def store_orchestration(
    connection: Connection,
    definition: Mapping[str, Any],
    *,
    id: uuid.UUID,
    application_id: uuid.UUID,
    host_id: int,
    is_newest: bool,
) -> DeployedOrchestration:
    """Store an orchestration. An existing one keeps its state."""
    columns = {
        "id": id,
        "application_id": application_id,
        "host_id": host_id,
        "definition": Jsonb(definition),
        "is_newest": is_newest,
    }
    [(application,)] = connection.execute(statement("queries/store_orchestration"), columns).fetchall()
    service = Service(
        id=id,
        kind="orchestration",
        application=application,
        name=definition["name"],
        port_name=definition["name"],
        host_id=host_id,
        version=definition["version"],
        two_way=definition["answers"],
    )
    store_service(connection, service)
    return next(one for one in read_orchestrations(connection) if one.service_id == id)


def delete_orchestration(connection: Connection, service_id: uuid.UUID) -> None:
    """Delete an orchestration without an activation subscription. Its instances stay."""
    connection.execute("DELETE FROM orchestrations WHERE id = %s", (service_id,))


def find_convoy_set(connection: Connection, one: DeployedOrchestration) -> int | None:
    """Return the convoy set that an orchestration had before, or that another version has, or that its instances have
    that were kept when it was removed."""
    row = connection.execute(
        "SELECT convoy_set_id FROM orchestrations"
        " WHERE name = %s AND host_id = %s AND convoy = %s AND convoy_set_id IS NOT NULL ORDER BY version DESC LIMIT 1",
        (one.name, one.host_id, Jsonb(one.convoy)),
    ).fetchone()
    if row is None:
        arguments = (one.service_id, one.host_id, one.convoy)
        row = connection.execute(statement("queries/find_convoy_set"), arguments).fetchone()
    return None if row is None else row[0]


def store_convoy_set(connection: Connection, service_id: uuid.UUID, convoy_set_id: int) -> None:
    connection.execute("UPDATE orchestrations SET convoy_set_id = %s WHERE id = %s", (convoy_set_id, service_id))


def create_correlation_type(connection: Connection, keys: Sequence[str]) -> None:
    """Create the correlation type of these properties, unless it exists. A new one changes the routing."""
    connection.execute(
        "SELECT correlation_type(array_agg(id ORDER BY id)) FROM properties WHERE key = ANY (%s)", (list(keys),)
    )
