"""The rows of the work, scheduled and suspended queues."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString

from postroom.message import Context
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.instances import InstanceState
from postroom.messagebox.queues import Cause, QueueTask
from tests.support.contents.configuration import Configuration


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
    service_class: str
    task: str
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
    cause: str | None = None
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
    state: str
    cause: str | None


_CONTENT: LiteralString = """
    SELECT q.seq, q.host_id, q.message_id, q.instance_id, q.service_id, p.name AS port, q.service_class, q.task,
           q.attempt, q.priority, q.enqueued_at, q.counted_in::text AS counted_in,
           coalesce(s.context, '{}') AS stored_context, b.body, coalesce(s.part_ids, '{}') AS part_ids"""


_JOINS: LiteralString = """
      LEFT JOIN send_ports p ON p.id = q.service_id
      LEFT JOIN spool s USING (message_id) LEFT JOIN parts b ON b.part_id = s.body_part_id
     ORDER BY q.seq"""


class Queues(Configuration):
    """The rows of the work, scheduled and suspended queues."""

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
