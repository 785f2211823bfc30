"""What a MessageBox contains, by idea. Only this folder and the tests of the SQL objects themselves know tables."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, LiteralString, TypeVar

from psycopg import sql
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from postroom.message import Context
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import delete_service, remove_service
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceState
from postroom.messagebox.storage.copy_rows import Cause, QueueTask
from postroom.ports.send_ports import SendPort, read_send_ports

Countable = Literal[
    "applications",
    "audit",
    "claimed",
    "claimed orchestrations",
    "convoys",
    "correlations",
    "file claims",
    "fragments",
    "group members",
    "handlers",
    "host instances",
    "host properties",
    "hosts",
    "inbox",
    "inbox fragments",
    "instance subscriptions",
    "instances",
    "journal entries",
    "leases",
    "messages",
    "open circuits",
    "operation instances",
    "operations",
    "orchestration instances",
    "orchestration messages",
    "orchestrations with a timer",
    "parts",
    "paused",
    "poll attempts",
    "predicates",
    "program subscriptions",
    "properties",
    "queued",
    "queued for orchestrations",
    "receipts",
    "received stream units",
    "receive locations",
    "received orchestration messages",
    "responses to callers",
    "routing failure reports",
    "routing version",
    "running locations",
    "running sinks",
    "scheduled",
    "send port groups",
    "send ports",
    "sink batches",
    "splits",
    "started orchestrations",
    "stream units",
    "streams",
    "subscriptions",
    "suspended",
    "suspended by stopped ports",
    "suspended orchestrations",
    "messages with one reference",
    "negative reference totals",
    "reference totals",
    "unreferenced messages",
    "transient predicates",
    "transient properties",
    "unclaimed",
    "unclaimed orchestrations",
    "unreceived orchestration messages",
    "unsuspended orchestrations",
    "waiting orchestrations",
]

_COUNTED: dict[Countable, LiteralString] = {
    "applications": "applications",
    "audit": "audit",
    "claimed": "work_queue WHERE claim_id IS NOT NULL",
    "claimed orchestrations": "orchestration_instances WHERE claim_id IS NOT NULL",
    "convoys": "convoy_set_instances",
    "correlations": "correlation_types",
    "file claims": "file_claims",
    "fragments": "fragments",
    "group members": "send_port_group_members",
    "handlers": "handlers",
    "host instances": "host_instances",
    "host properties": "application_properties",
    "hosts": "hosts",
    "inbox": "inbox",
    "inbox fragments": "inbox_fragments",
    "instance subscriptions": "subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL",
    "instances": "instances",
    "journal entries": "orchestration_journal",
    "leases": "leases",
    "messages": "spool",
    "open circuits": "open_circuits",
    "operation instances": "operation_instances",
    "operations": "operations",
    "orchestration instances": "orchestration_instances",
    "orchestration messages": "orchestration_messages",
    "orchestrations with a timer": "orchestration_instances WHERE wake_at IS NOT NULL AND claim_id IS NULL",
    "parts": "parts",
    "paused": "scheduled_queue WHERE paused",
    "poll attempts": "poll_attempts",
    "predicates": "predicates",
    "program subscriptions": "program_subscriptions",
    "properties": "properties",
    "queued": "work_queue",
    "queued for orchestrations": "work_queue WHERE service_class = 1",
    "receipts": "receipts",
    "received stream units": "stream_units JOIN (SELECT DISTINCT unit FROM receipts) AS received USING (unit)",
    "receive locations": "receive_locations",
    "received orchestration messages": "orchestration_messages WHERE consumed_in IS NOT NULL",
    "responses to callers": "work_queue WHERE for_host_instance IS NOT NULL",
    "routing failure reports": "suspended_queue WHERE cause = 3",
    "routing version": "routing_version",
    "running locations": "running_locations",
    "running sinks": "running_sinks",
    "scheduled": "scheduled_queue",
    "send port groups": "send_port_groups",
    "send ports": "send_ports",
    "sink batches": "sink_batches",
    "splits": "splits",
    "started orchestrations": "orchestration_instances WHERE journal_length > 0",
    "stream units": "stream_units",
    "streams": "streams",
    "subscriptions": "subscriptions WHERE removed_at IS NULL",
    "suspended": "suspended_queue",
    "suspended by stopped ports": "suspended_queue WHERE cause = 1",
    "suspended orchestrations": "orchestration_instances WHERE suspended_at IS NOT NULL",
    "messages with one reference": "spool WHERE only_reference",
    "negative reference totals": "message_ref_count_log_totals WHERE total < 0",
    "reference totals": "message_ref_count_log_totals",
    "unreferenced messages": "message_zero_sum",
    "transient predicates": "message_predicates",
    "transient properties": "message_properties",
    "unclaimed": "work_queue WHERE claim_id IS NULL",
    "unclaimed orchestrations": "orchestration_instances WHERE claim_id IS NULL",
    "unreceived orchestration messages": "orchestration_messages WHERE consumed_in IS NULL",
    "unsuspended orchestrations": "orchestration_instances WHERE suspended_at IS NULL",
    "waiting orchestrations": "orchestration_instances WHERE journal_length > 0 AND claim_id IS NULL",
}

_T = TypeVar("_T")


def count_query(what: Countable) -> str:
    return f"SELECT count(*) FROM {_COUNTED[what]}"


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    message_id: uuid.UUID
    part_ids: list[uuid.UUID]
    body_part_id: uuid.UUID | None
    body: bytes | None
    """None also if the body is stored in fragments."""
    stored_context: dict[str, Any]
    published_at: datetime
    published_by: str
    originator_sid: str | None
    originator_pid: str | None
    transaction: str

    @property
    def context(self) -> Context:
        return Context.from_json(self.stored_context)


@dataclass(frozen=True, kw_only=True)
class StoredPart:
    part_id: uuid.UUID
    name: str
    content_type: str
    size: int
    body: bytes | None
    """None: the content is stored in fragments."""


@dataclass(frozen=True, kw_only=True)
class QueueRow:
    """A message in a work, scheduled or suspended queue, with its content."""

    seq: int
    host_id: int
    message_id: uuid.UUID
    instance_id: uuid.UUID
    service_id: uuid.UUID | None
    port: str | None
    """The name of the send port."""
    service_class: int
    task: int
    attempt: int
    priority: int
    enqueued_at: datetime
    counted_in: str
    stored_context: dict[str, Any]
    body: bytes | None
    part_ids: list[uuid.UUID]
    claim_id: uuid.UUID | None = None
    claimed_by: int | None = None
    valid_from: datetime | None = None
    resumable: bool = True
    cause: int | None = None
    error_code: str = ""
    error_description: str = ""
    adapter: str | None = None
    uri: str | None = None
    related_instance_id: uuid.UUID | None = None

    @property
    def context(self) -> Context:
        return Context.from_json(self.stored_context)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One message of a service instance, in any state."""

    instance_id: uuid.UUID
    message_id: uuid.UUID
    seq: int
    service_id: uuid.UUID | None
    port: str | None
    state: int
    cause: int | None


@dataclass(frozen=True, kw_only=True)
class OrchestrationInstance:
    instance_id: uuid.UUID
    service_id: uuid.UUID
    journal_length: int
    journals: int
    carried: Any
    wake_at: datetime | None
    is_claimed: bool
    is_suspended: bool
    error_code: str | None
    error_description: str | None


@dataclass(frozen=True, kw_only=True)
class OrchestrationMessage:
    """A message of an orchestration instance."""

    instance_id: uuid.UUID
    is_received: bool
    is_stored: bool


@dataclass(frozen=True, kw_only=True)
class FileClaim:
    interchange_id: uuid.UUID
    location_id: uuid.UUID
    name: str
    state: int
    problem: str | None
    attempts: int
    number: int | None


@dataclass(frozen=True, kw_only=True)
class StoredInterchange:
    """An interchange in the inbox."""

    interchange_id: uuid.UUID
    size: int
    body: bytes | None
    transaction: str


@dataclass(frozen=True, kw_only=True)
class RegisteredInstance:
    """A running process: a host instance or a pipeline."""

    id: int
    host_id: int
    kind: str
    server: str
    pid: int
    routing_version: int
    dead_since: datetime | None
    throttles: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Subscription:
    id: int
    service_class: int
    service_id: uuid.UUID
    service_name: str
    instance_id: uuid.UUID | None
    priority: int
    ordered: bool
    request_response: bool
    group_id: uuid.UUID | None
    for_host_instance: int | None


@dataclass(frozen=True, kw_only=True)
class RunningLocation:
    location_id: uuid.UUID
    state: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class RunningSink:
    port: str
    state: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class OpenCircuit:
    probes: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobRun:
    name: str
    runs: int
    error: str | None


@dataclass(frozen=True, kw_only=True)
class Receipt:
    unit: uuid.UUID
    chunk: int
    outcome: dict[str, Any]


#: The tables that record which transaction counted a reference.
_COUNTING = (
    *(f"{kind}_ref_count_log_{name}" for kind in ("message", "part") for name in ("1", "2", "totals")),
    *("work_queue", "spool", "parts"),
)

_CONTENT: LiteralString = """
    SELECT q.seq, q.host_id, q.message_id, q.instance_id, q.service_id, p.name AS port, q.service_class, q.task,
           q.attempt, q.priority, q.enqueued_at, q.counted_in::text AS counted_in,
           coalesce(s.context, '{}') AS stored_context, b.body, coalesce(s.part_ids, '{}') AS part_ids"""
_JOINS: LiteralString = """
      LEFT JOIN send_ports p ON p.id = q.service_id
      LEFT JOIN spool s USING (message_id) LEFT JOIN parts b ON b.part_id = s.body_part_id
     ORDER BY q.seq"""


class Contents:
    """Reads and changes a MessageBox directly, without its processes, as far as the login of the connection may."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def one(self, query: str, *parameters: Any) -> Any:
        """Return the first column of the first row, or None if there is no row."""
        row = self.connection.execute(query, parameters).fetchone()
        return None if row is None else row[0]

    def count(self, what: Countable) -> int:
        return int(self.one(count_query(what)))

    def count_rows(self, table: str) -> int:
        """Count the rows of a table. Only for tests of SQL objects."""
        return int(self.one(f"SELECT count(*) FROM {table}"))

    def delete_all(self, what: Countable) -> None:
        deleted = sql.SQL("DELETE FROM {}").format(sql.SQL(_COUNTED[what]))
        if what not in ("send ports", "receive locations", "send port groups"):
            self.connection.execute(deleted)
            return
        remove = delete_service if what == "send port groups" else remove_service
        for (service_id,) in self.connection.execute(deleted + sql.SQL(" RETURNING id")).fetchall():
            remove(self.connection, service_id)

    def lock(self, what: Countable, mode: LiteralString = "ACCESS EXCLUSIVE") -> None:
        """Lock the table until the end of the transaction."""
        self.connection.execute(sql.SQL("LOCK TABLE {} IN {} MODE").format(sql.SQL(_COUNTED[what]), sql.SQL(mode)))

    def can_change(self, what: Countable) -> bool:
        """Return whether the login may change or delete what exists."""
        return any(
            self.one("SELECT has_table_privilege(%s, %s)", _COUNTED[what], privilege)
            for privilege in ("UPDATE", "DELETE", "TRUNCATE")
        )

    def exists(self) -> bool:
        """Return whether the database has a MessageBox."""
        return self.one("SELECT to_regclass('messagebox.spool')") is not None

    def add_trigger(self, name: LiteralString, what: Countable, moment: LiteralString, function: LiteralString) -> None:
        """Call a function at a moment, such as ``AFTER INSERT``, of each statement."""
        trigger = sql.SQL("CREATE TRIGGER {} {} ON {} EXECUTE FUNCTION {}")
        parts = (name, moment, _COUNTED[what], function)
        self.connection.execute(trigger.format(*map(sql.SQL, parts)))

    # -- messages ----------------------------------------------------------------------------------------------

    def messages(self) -> list[StoredMessage]:
        """Return the stored messages in the order of their publication."""
        return self._read(
            StoredMessage,
            "SELECT s.message_id, part_ids, body_part_id, body, context AS stored_context, published_at, published_by,"
            " originator_sid, originator_pid, s.xmin::text AS transaction"
            " FROM spool s LEFT JOIN parts ON part_id = body_part_id ORDER BY published_at, message_id",
        )

    def message(self, message_id: uuid.UUID) -> StoredMessage:
        return next(message for message in self.messages() if message.message_id == message_id)

    def parts(self) -> list[StoredPart]:
        return self._read(StoredPart, "SELECT part_id, name, content_type, size, body FROM parts ORDER BY part_id")

    def bodies(self) -> list[bytes]:
        """Return the content of all parts that are not stored in fragments."""
        return [part.body for part in self.parts() if part.body is not None]

    def fragments(self) -> list[bytes]:
        rows = self.connection.execute("SELECT body FROM fragments ORDER BY part_id, number")
        return [body for (body,) in rows]

    def count_references(self, what: Literal["message", "part"]) -> int:
        """Return the sum of all reference counts in the logs and totals."""
        return int(self.one(f"SELECT sum(total) FROM {what}_ref_counts") or 0)

    def read_content(self, part_id: uuid.UUID) -> bytes:
        """Return the content of a part, also of one that is stored in fragments."""
        content: bytes = self.one(
            "SELECT coalesce(body, (SELECT string_agg(f.body, '' ORDER BY f.number) FROM fragments f"
            " WHERE f.part_id = p.part_id)) FROM parts p WHERE part_id = %s",
            part_id,
        )
        return content

    def delete_message(self, message_id: uuid.UUID) -> None:
        """Delete a message whose queue rows stay."""
        self.connection.execute("DELETE FROM spool WHERE message_id = %s", (message_id,))

    def delete_fragment(self, number: int) -> None:
        """Delete one fragment of each part that is stored in fragments."""
        self.connection.execute("DELETE FROM fragments WHERE number = %s", (number,))

    def read_active_log(self) -> int:
        """Return the number of the log that counts references of messages now."""
        return int(self.one("SELECT active FROM active_ref_count_log WHERE kind = 'message'"))

    def add_messages(self, count: int, *, size: int) -> None:
        """Add messages without parts and references, which have one property of this size."""
        self.connection.execute(
            "INSERT INTO spool (message_id, part_ids, context)"
            " SELECT gen_random_uuid(), '{}', jsonb_build_object('promoted', jsonb_build_object('t', repeat('y', %s)))"
            "   FROM generate_series(1, %s)",
            (size, count),
        )

    def remove_properties(self, *keys: str) -> None:
        """Remove properties from the contexts of all messages, which were written and not promoted."""
        self.connection.execute(
            "UPDATE spool SET context = jsonb_set(context, '{written}', (context -> 'written') - %s::text[])",
            (list(keys),),
        )

    def add_references(self, count: int) -> None:
        """Count references of all messages that do not exist."""
        self.connection.execute(
            "INSERT INTO message_ref_count_log_totals SELECT message_id, '3', %s FROM spool", (count,)
        )

    def move_transactions_to_future(self) -> None:
        """Let transactions have counted and created everything that this server has not begun, as after a restore."""
        for table in _COUNTING:
            self.connection.execute(
                f"UPDATE {table} SET counted_in = (counted_in::text::bigint + (1 << 40))::text::xid8"
            )
        self.connection.execute("UPDATE subscriptions SET created_in = '999999999999'")

    def find_future_transactions(self) -> list[str]:
        """Return the tables in which transactions that this server has not begun have counted references."""
        where = "counted_in >= pg_current_xact_id()"
        counted = {table: f"{table} WHERE {where}" for table in _COUNTING}
        for table in ("spool", "parts"):
            counted[table] += " AND only_reference"
        counted["subscriptions"] = "subscriptions WHERE created_in IS NOT NULL"
        return [table for table, rows in counted.items() if self.count_rows(rows)]

    def block_publishing(self, *, after: int) -> None:
        """Let publishers wait when there are more messages, until `unblock_publishing`."""
        self.connection.execute(
            "CREATE FUNCTION messagebox.block() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
            f" IF (SELECT count(*) FROM messagebox.spool) > {after}"
            " THEN PERFORM pg_advisory_xact_lock(2000); END IF; RETURN NULL; END $$"
        )
        self.add_trigger("block", "messages", "AFTER INSERT", "messagebox.block()")
        self.connection.execute("SELECT pg_advisory_lock(2000)")

    def unblock_publishing(self) -> None:
        self.connection.execute("SELECT pg_advisory_unlock(2000)")
        self.connection.execute("DROP FUNCTION messagebox.block CASCADE")

    # -- queues ------------------------------------------------------------------------------------------------

    def queued_rows(self) -> list[QueueRow]:
        """Return the rows of all work queues in their order."""
        return self._read(QueueRow, _CONTENT + ", q.claim_id, q.claimed_by FROM work_queue q" + _JOINS)

    def scheduled_rows(self) -> list[QueueRow]:
        columns: LiteralString = ", q.valid_from, q.error_code, q.error_description"
        return self._read(QueueRow, _CONTENT + columns + " FROM scheduled_queue q" + _JOINS)

    def suspended_rows(self) -> list[QueueRow]:
        columns: LiteralString = (
            ", q.resumable, q.cause, q.error_code, q.error_description, q.adapter, q.uri, q.related_instance_id"
        )
        return self._read(QueueRow, _CONTENT + columns + " FROM suspended_queue q" + _JOINS)

    def resumable_row(self) -> QueueRow:
        """Return the first suspended message that can be resumed."""
        return next(row for row in self.suspended_rows() if row.resumable)

    def report(self) -> QueueRow:
        """Return the only routing failure report."""
        [report] = [row for row in self.suspended_rows() if row.cause == Cause.ROUTING_FAILURE_REPORT]
        return report

    def read_error(self) -> str:
        """Return the description of the error of the first suspended message."""
        return self.suspended_rows()[0].error_description

    def instances(self) -> list[Instance]:
        """Return the messages of all instances in all queues, and of orchestrations."""
        return self._read(
            Instance,
            "SELECT i.instance_id, i.message_id, i.seq, i.service_id, p.name AS port, i.state, i.cause"
            " FROM instances i LEFT JOIN send_ports p ON p.id = i.service_id ORDER BY i.seq",
        )

    def resume_all(self) -> None:
        self.connection.execute("SELECT resume_instances(array_agg(instance_id)) FROM suspended_queue")

    def terminate_all(self) -> None:
        self.connection.execute("SELECT terminate_instances(array_agg(instance_id)) FROM instances")

    def claim_all(self, claim_id: uuid.UUID | None = None, *, claimed_by: int = 1) -> None:
        """Let another claim take all messages of the work queues."""
        self.connection.execute(
            "UPDATE work_queue SET claim_id = %s, claimed_by = %s", (claim_id or uuid.uuid4(), claimed_by)
        )

    def claim_row(self, seq: int) -> None:
        self.connection.execute(
            "UPDATE work_queue SET claim_id = gen_random_uuid(), claimed_by = 1 WHERE seq = %s", (seq,)
        )

    def delete_queued(self, instance_id: uuid.UUID) -> None:
        """Delete the queue row of an instance, as if it had ended without removing its message."""
        self.connection.execute("DELETE FROM work_queue WHERE instance_id = %s", (instance_id,))

    def age_first_queued(self, age: timedelta) -> None:
        """Let the first message of the work queues have waited that long."""
        self.connection.execute(
            "UPDATE work_queue SET enqueued_at = now() - %s WHERE seq = (SELECT min(seq) FROM work_queue)", (age,)
        )

    def set_error(self, seq: int, description: str) -> None:
        self.connection.execute("UPDATE suspended_queue SET error_description = %s WHERE seq = %s", (description, seq))

    def forget_services(self) -> None:
        """Let no suspended message belong to a service that exists."""
        self.connection.execute("UPDATE suspended_queue SET service_id = gen_random_uuid()")

    def let_location_suspend(self, instance_id: uuid.UUID, location_id: uuid.UUID, task: QueueTask) -> None:
        """Let a receive location have suspended a suspended instance."""
        self.connection.execute(
            "UPDATE suspended_queue SET service_id = %s, subscription_id = NULL, task = %s, cause = %s"
            " WHERE instance_id = %s",
            (location_id, task, Cause.FAILURE, instance_id),
        )

    def postpone_message(self) -> None:
        """Let a message that does not exist wait until tomorrow for the service window of the only send port."""
        port = self.port()
        self.connection.execute(
            "INSERT INTO scheduled_queue (seq, host_id, message_id, service_class, service_id, instance_id, priority,"
            " enqueued_at, valid_from, state)"
            " VALUES (1, %s, gen_random_uuid(), %s, %s, gen_random_uuid(), 5, now(), now() + interval '1 day', %s)",
            (port.host_id, ServiceClass.MESSAGING_IN_PROCESS, port.port_id, InstanceState.SCHEDULED),
        )

    def pause_scheduled(self) -> None:
        """Let an open circuit breaker have paused all scheduled messages."""
        self.connection.execute("UPDATE scheduled_queue SET valid_from = 'infinity', paused = true")

    def lock_first_queued(self) -> None:
        """Lock the first message of the work queues until the end of the transaction."""
        self.connection.execute("SELECT FROM work_queue ORDER BY seq LIMIT 1 FOR UPDATE")

    def lock_queued(self) -> None:
        """Lock all messages of the work queues until the end of the transaction."""
        self.connection.execute("SELECT FROM work_queue ORDER BY seq FOR UPDATE")

    def schedule(self, instance_id: uuid.UUID) -> None:
        """Let a queued instance wait for its first retry, for a very long time."""
        self.connection.execute(
            "WITH moved AS (DELETE FROM work_queue WHERE instance_id = %s RETURNING *)"
            " INSERT INTO scheduled_queue (seq, host_id, message_id, subscription_id, service_class, service_id,"
            " instance_id, priority, task, attempt, enqueued_at, counted_in, valid_from)"
            " SELECT seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task,"
            " 1, enqueued_at, counted_in, '2999-01-01' FROM moved",
            (instance_id,),
        )

    def release_all(self) -> None:
        self.connection.execute("UPDATE work_queue SET claim_id = NULL, claimed_by = NULL")

    def make_due(self) -> None:
        """Let all scheduled messages be due now."""
        self.connection.execute("UPDATE scheduled_queue SET valid_from = now()")

    def age_queues(self, age: timedelta) -> None:
        """Move the times of all queued and scheduled messages into the past."""
        self.connection.execute("UPDATE work_queue SET enqueued_at = enqueued_at - %s", (age,))
        self.connection.execute(
            "UPDATE scheduled_queue SET enqueued_at = enqueued_at - %(age)s, valid_from = valid_from - %(age)s",
            {"age": age},
        )

    # -- orchestrations ----------------------------------------------------------------------------------------

    def orchestration_instances(self) -> list[OrchestrationInstance]:
        return self._read(
            OrchestrationInstance,
            "SELECT instance_id, service_id, journal_length, journals, carried, wake_at,"
            " claim_id IS NOT NULL AS is_claimed, suspended_at IS NOT NULL AS is_suspended, error_code,"
            " error_description FROM orchestration_instances ORDER BY created_at, instance_id",
        )

    def running_orchestrations(self) -> list[uuid.UUID]:
        """Return the instances of orchestrations whose messages can still be received, or are queued."""
        rows = self.connection.execute(
            "SELECT instance_id FROM instances WHERE service_class = %s AND state <> %s",
            (ServiceClass.ORCHESTRATIONS, InstanceState.SUSPENDED_NOT_RESUMABLE),
        )
        return [instance_id for (instance_id,) in rows]

    def read_orchestration_error(self) -> str:
        """Return the description of the error of the first orchestration instance that has one."""
        return next(one.error_description for one in self.orchestration_instances() if one.error_description)

    def orchestration_messages(self) -> list[OrchestrationMessage]:
        return self._read(
            OrchestrationMessage,
            "SELECT instance_id, consumed_in IS NOT NULL AS is_received, s.message_id IS NOT NULL AS is_stored"
            " FROM orchestration_messages LEFT JOIN spool s USING (message_id) ORDER BY seq",
        )

    def find_last_received(self) -> int:
        """Return the number of the last journal entry that received a message, or 0."""
        return int(self.one("SELECT coalesce(max(consumed_in), 0) FROM orchestration_messages"))

    def add_suspended_orchestration(self, error_code: str) -> None:
        """Add a suspended instance of each deployed orchestration."""
        self.connection.execute(
            "INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, suspended_at,"
            " error_code) SELECT gen_random_uuid(), host_id, id, 7, now(), now(), %s FROM orchestrations",
            (error_code,),
        )

    def journal(self) -> list[Any]:
        """Return the turns of all journals."""
        rows = self.connection.execute("SELECT turns FROM orchestration_journal ORDER BY number")
        return [turn for (turns,) in rows for turn in turns]

    def claim_orchestration(self, instance_id: uuid.UUID) -> None:
        """Let another claim take an orchestration instance."""
        self.connection.execute(
            "UPDATE orchestration_instances SET claim_id = gen_random_uuid() WHERE instance_id = %s", (instance_id,)
        )

    def release_orchestrations(self) -> None:
        """Let all orchestration instances be ready to be claimed."""
        self.connection.execute("UPDATE orchestration_instances SET claim_id = NULL, ready_seq = 1")

    def orchestration_ids(self) -> list[uuid.UUID]:
        """Return the ids of the deployed orchestrations."""
        return [found for (found,) in self.connection.execute("SELECT id FROM orchestrations")]

    def set_process_deaths(self, deaths: int) -> None:
        self.connection.execute(
            "UPDATE orchestration_instances SET process_deaths = %s WHERE suspended_at IS NULL", (deaths,)
        )

    # -- receiving ---------------------------------------------------------------------------------------------

    def file_claims(self) -> list[FileClaim]:
        """Return the claims of files by their name."""
        return self._read(
            FileClaim,
            "SELECT interchange_id, location_id, name, state, problem, attempts, number FROM file_claims ORDER BY name",
        )

    def add_file_claim(
        self,
        location_id: uuid.UUID,
        *,
        name: str = "a.json",
        state: int = 2,
        problem: str | None = None,
        number: int | None = None,
        size: int | None = None,
        interchange_id: uuid.UUID | None = None,
    ) -> None:
        self.connection.execute(
            "INSERT INTO file_claims (interchange_id, location_id, name, path, state, problem, number, size)"
            " VALUES (%s, %s, %s, '/' || %s, %s, %s, %s, %s)",
            (interchange_id or uuid.uuid4(), location_id, name, name, state, problem, number, size),
        )

    def change_file_claims(self, **values: Any) -> None:
        self._set("file_claims", None, values)

    def delete_file_claim(self, interchange_id: uuid.UUID) -> None:
        self.connection.execute("DELETE FROM file_claims WHERE interchange_id = %s", (interchange_id,))

    def age_attempts(self, age: timedelta) -> None:
        """Move the first attempts at all claimed files into the past."""
        self.connection.execute("UPDATE file_claims SET attempts_since = attempts_since - %s", (age,))

    def checkpoint_ids(self) -> list[uuid.UUID]:
        """Return the ids of the checkpoints of all streams."""
        return [found for (found,) in self.connection.execute("SELECT checkpoint_id FROM streams")]

    def sink_attempts(self) -> list[int]:
        """Return the attempts at the messages of a sink that were tried alone, in their order."""
        return [attempts for (attempts,) in self.connection.execute("SELECT attempts FROM sink_attempts ORDER BY seq")]

    def inbox(self) -> list[StoredInterchange]:
        return self._read(StoredInterchange, "SELECT interchange_id, size, body, xmin::text AS transaction FROM inbox")

    def inbox_fragments(self) -> list[bytes]:
        rows = self.connection.execute("SELECT body FROM inbox_fragments ORDER BY number")
        return [body for (body,) in rows]

    def add_streams(self) -> None:
        """Let a stream of each receive location have been started."""
        self.connection.execute(
            "INSERT INTO streams (location_id, checkpoint_id) SELECT id, gen_random_uuid() FROM receive_locations"
        )

    def delete_locations_of_intake(self) -> None:
        """Delete all receive locations, also those whose files and interchanges are not published."""
        for table in ("file_claims", "inbox"):
            self.connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_location")
        self.connection.execute("DELETE FROM receive_locations")
        self.connection.execute("DELETE FROM services WHERE kind = 'location'")

    def lock_locations(self, name: str | None = None) -> None:
        """Lock one receive location or all until the end of the transaction."""
        self.connection.execute("SELECT FROM services WHERE name = coalesce(%s, name) FOR UPDATE", (name,))

    def poll_attempts(self) -> list[int]:
        return [attempts for (attempts,) in self.connection.execute("SELECT attempts FROM poll_attempts")]

    def add_poll_attempts(self, location_id: uuid.UUID, count: int) -> None:
        self.connection.execute(
            "INSERT INTO poll_attempts (interchange_id, location_id, attempts, attempts_since)"
            " SELECT gen_random_uuid(), %s, 1, now() FROM generate_series(1, %s)",
            (location_id, count),
        )

    def receipts(self) -> list[Receipt]:
        return self._read(Receipt, "SELECT unit, chunk, outcome FROM receipts ORDER BY unit, chunk")

    def add_receipt(self, unit: uuid.UUID, outcome: dict[str, Any] | None = None) -> None:
        self.connection.execute("INSERT INTO receipts (unit, outcome) VALUES (%s, %s)", (unit, Jsonb(outcome or {})))

    # -- processes ---------------------------------------------------------------------------------------------

    def host_instances(self) -> list[RegisteredInstance]:
        return self._read(
            RegisteredInstance,
            "SELECT id, host_id, kind, server, pid, routing_version, dead_since, throttles FROM host_instances"
            " ORDER BY id",
        )

    def add_host_instance(self, server: str = "gone", *, host_id: int = 1, pid: int = 1, is_dead: bool = False) -> int:
        """Register a host instance that does not run, and return its number."""
        number: int = self.one(
            "INSERT INTO host_instances (host_id, server, pid, dead_since)"
            " VALUES (%s, %s, %s, CASE WHEN %s THEN now() END) RETURNING id",
            host_id,
            server,
            pid,
            is_dead,
        )
        return number

    def delete_host_instance(self, number: int) -> None:
        self.connection.execute("DELETE FROM host_instances WHERE id = %s", (number,))

    def job_runs(self) -> list[JobRun]:
        return self._read(JobRun, "SELECT name, runs, error FROM job_runs ORDER BY name")

    def age_jobs(self, age: timedelta) -> None:
        """Let the last run of all jobs have ended that long ago."""
        self.connection.execute("UPDATE job_runs SET finished_at = now() - %s", (age,))

    def open_circuits(self) -> list[OpenCircuit]:
        return self._read(OpenCircuit, "SELECT probes, reason FROM open_circuits")

    def let_circuits_probe(self) -> None:
        """Let the next probe of all open circuits be due now."""
        self.connection.execute("UPDATE open_circuits SET next_probe_at = now()")

    def finished_jobs(self, *, since: datetime) -> set[str]:
        """Return the names of the jobs that have finished since then."""
        rows = self.connection.execute("SELECT name FROM job_runs WHERE finished_at > %s", (since,))
        return {name for (name,) in rows}

    def running_locations(self) -> list[RunningLocation]:
        return self._read(RunningLocation, "SELECT location_id, state, reason FROM running_locations")

    def add_running_location(self, location_id: uuid.UUID) -> None:
        """Report that a process that does not run receives for a location."""
        self.connection.execute(
            "INSERT INTO running_locations (location_id, state, server, pid) VALUES (%s, 'receiving', 'killed', 1)",
            (location_id,),
        )

    def running_sinks(self) -> list[RunningSink]:
        return self._read(
            RunningSink,
            "SELECT p.name AS port, r.state, r.reason FROM running_sinks r JOIN send_ports p ON p.id = r.port_id"
            " ORDER BY p.name",
        )

    # -- configuration -----------------------------------------------------------------------------------------

    def port(self, name: str | None = None) -> SendPort:
        """Return the send port of that name, or the only one."""
        [port] = [port for port in read_send_ports(self.connection) if name in (None, port.name)]
        return port

    def subscriptions(self, *, with_removed: bool = False) -> list[Subscription]:
        """Return the subscriptions, with those that are removed and not purged yet if wanted."""
        return self._read(
            Subscription,
            "SELECT id, service_class, service_id, service_name, instance_id, priority, ordered, request_response,"
            " group_id, for_host_instance FROM subscriptions WHERE removed_at IS NULL OR %s ORDER BY id",
            with_removed,
        )

    def remove_subscriptions(self) -> None:
        """Let all subscriptions have been removed a day ago."""
        self.connection.execute("UPDATE subscriptions SET removed_at = now() - interval '1 day'")

    def subscriptions_of_orchestrations(self) -> list[Subscription]:
        return [one for one in self.subscriptions() if one.service_class == ServiceClass.ORCHESTRATIONS]

    def set_dequeuing(
        self, service_class: int | None = None, *, threads: int | None = None, interval: timedelta | None = None
    ) -> None:
        """Change the dequeuing of one service class or of all, also to values that operators cannot choose."""
        self.connection.execute(
            "UPDATE service_classes SET dequeue_threads = coalesce(%s, dequeue_threads),"
            " polling_interval = coalesce(%s, polling_interval) WHERE id = coalesce(%s, id)",
            (threads, interval, service_class),
        )

    def set_ports(self, name: str | None = None, **columns: Any) -> None:
        """Change what is stored of one send port or of all. It need not be valid."""
        self._set("send_ports", name, columns)

    def merge_port(self, name: str | None = None, *, adapter: dict[str, Any]) -> None:
        """Change settings of the adapter of one send port or of all."""
        self.connection.execute(
            "UPDATE send_ports SET adapter = adapter || %s WHERE name = coalesce(%s, name)", (Jsonb(adapter), name)
        )

    def move_port(self, name: str, host_id: int) -> None:
        """Let another host serve a send port. Its queued messages stay in the queue of the former host."""
        self.connection.execute("UPDATE send_ports SET host_id = %s WHERE name = %s", (host_id, name))
        self.connection.execute(
            "UPDATE services SET host_id = %s, former_host_ids = former_host_ids || host_id WHERE name = %s",
            (host_id, name),
        )

    def set_locations(self, name: str | None = None, **columns: Any) -> None:
        """Change what is stored of one receive location or of all. It need not be valid."""
        self._set("receive_locations", name, columns)
        if "host_id" in columns:
            self.connection.execute(
                "UPDATE services SET host_id = %s WHERE kind = 'location' AND name = coalesce(%s, name)",
                (columns["host_id"], name),
            )

    def merge_locations(
        self, name: str | None = None, *, adapter: dict[str, Any] | None = None, pipeline: dict[str, Any] | None = None
    ) -> None:
        """Change settings of the adapter and the pipeline of one receive location or of all."""
        self.connection.execute(
            "UPDATE receive_locations SET adapter = adapter || %s, pipeline = pipeline || %s"
            " WHERE name = coalesce(%s, name)",
            (Jsonb(adapter or {}), Jsonb(pipeline or {}), name),
        )

    def set_authentication(self, authentication: str) -> None:
        """Change the authentication of all receive ports."""
        self.connection.execute("UPDATE receive_ports SET authentication = %s", (authentication,))

    def add_host_property(self, host_id: int, key: str, value: str) -> None:
        """Give a host a property that messages can require."""
        self.connection.execute("INSERT INTO application_properties VALUES (%s, %s, %s)", (host_id, key, value))

    def remove_host_properties(self, host_id: int) -> None:
        self.connection.execute("DELETE FROM application_properties WHERE host_id = %s", (host_id,))

    def remove_port(self, name: str | None = None) -> uuid.UUID:
        """Delete a send port, as if it had no messages, and return its id."""
        port = self.port(name)
        port_id: uuid.UUID = port.port_id
        self.connection.execute("DELETE FROM send_ports WHERE id = %s", (port_id,))
        return port_id

    def add_removed_port(self, port_id: uuid.UUID, name: str, *, two_way: bool = False) -> None:
        """Record a removed send port whose messages are kept."""
        self.connection.execute(
            "UPDATE services SET removed_at = now(), two_way = %s WHERE id = %s AND name = %s",
            (two_way, port_id, name),
        )

    def removed_services(self) -> list[tuple[str, bool]]:
        """Return the names of the removed services, and whether they were two-way."""
        rows = self.connection.execute("SELECT name, two_way FROM services WHERE removed_at IS NOT NULL ORDER BY name")
        return [(name, two_way) for name, two_way in rows]

    def refuse_port(self, name: str) -> None:
        """Let a deployment fail when it stores the send port of this name."""
        self.connection.execute(
            sql.SQL("ALTER TABLE send_ports ADD CONSTRAINT refuse CHECK (name <> {})").format(sql.Literal(name))
        )

    def host_properties(self, host_id: int) -> set[tuple[str, str]]:
        """Return the keys and values of the properties of a host."""
        rows = self.connection.execute(
            "SELECT property_key, value FROM application_properties WHERE host_id = %s", (host_id,)
        )
        return {(key, value) for key, value in rows}

    def sensitive_properties(self) -> set[str]:
        return {key for (key,) in self.connection.execute("SELECT key FROM properties WHERE sensitive")}

    def set_sensitive(self, key: str) -> None:
        self.connection.execute("UPDATE properties SET sensitive = true WHERE key = %s", (key,))

    def read_applied_at(self) -> datetime:
        """Return when the only application was applied."""
        applied_at: datetime = self.one("SELECT applied_at FROM applications")
        return applied_at

    def add_audit_entry(self, **columns: Any) -> None:
        """Add an entry with other columns, which no login can write."""
        values = {"action": "a", "target": "b", **columns}
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        places = sql.SQL(", ").join(sql.Placeholder() * len(values))
        statement = sql.SQL("INSERT INTO audit ({}) VALUES ({})").format(names, places)
        self.connection.execute(statement, list(values.values()))

    def read_key_secret(self, host_id: int) -> uuid.UUID:
        """Return the secret that the units of idempotency keys of a host are derived from."""
        secret: uuid.UUID = self.one("SELECT secret FROM key_secrets WHERE host_id = %s", host_id)
        return secret

    def read_id(self) -> str:
        """Return the id of the MessageBox."""
        return str(self.one("SELECT id FROM message_box"))

    # -- statements --------------------------------------------------------------------------------------------

    def _read(self, kind: type[_T], query: LiteralString, *parameters: object) -> list[_T]:
        with self.connection.cursor(row_factory=class_row(kind)) as cursor:
            return cursor.execute(query, parameters).fetchall()

    def _set(self, table: LiteralString, name: str | None, values: dict[str, Any]) -> None:
        """Change columns of the row of that name or of all rows. A dictionary or a list is stored as JSON."""
        columns = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(column)) for column in values)
        stored = [Jsonb(value) if isinstance(value, dict | list) else value for value in values.values()]
        where = sql.SQL(" WHERE name = coalesce(%s, name)")
        statement = sql.SQL("UPDATE {} SET {}").format(sql.Identifier(table), columns) + where
        self.connection.execute(statement, (*stored, name))
