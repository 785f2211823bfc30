"""Routing failure reports: the context of a message that had no subscriber, without its body."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from postroom.agent.routing.routes import write_message_references
from postroom.errors import RoutingFailure
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import Cause, QueueTask
from postroom.messagebox.routing import RoutingLock, lock_routing
from postroom.messagebox.storage.copy_rows import SuspendedRow, write_messages, write_suspended


@dataclass(frozen=True, kw_only=True)
class RoutingFailureReport:
    """A suspended instance that cannot be resumed. It is about the instances from ``related_instance_id`` to
    ``last_related_instance_id``, whose ids are consecutive, and is deleted together with the last of them."""

    message_id: uuid.UUID
    instance_id: uuid.UUID
    related_instance_id: uuid.UUID | None
    last_related_instance_id: uuid.UUID | None
    host_id: int
    context: Context
    description: str
    adapter: str | None = None
    uri: str | None = None
    """The address of the receive location. None if a program published the message."""

    @property
    def message(self) -> Message:
        return Message(context=self.context, message_id=self.message_id)

    def to_suspended_row(self) -> SuspendedRow:
        return SuspendedRow(
            message_id=self.message_id,
            instance_id=self.instance_id,
            host_id=self.host_id,
            service_class=ServiceClass.ROUTING_FAILURE_REPORT,
            service_id=None,
            task=QueueTask.DELIVER,
            cause=Cause.ROUTING_FAILURE_REPORT,
            error_code="ROUTING",
            error_description=self.description,
            resumable=False,
            adapter=self.adapter,
            uri=self.uri,
            related_instance_id=self.related_instance_id,
            last_related_instance_id=self.last_related_instance_id,
        )


class Unroutable(RoutingFailure):
    """A message has no subscriber. Carries its context, and the id of its report once that is written."""

    def __init__(self, what: str, context: Context, *, why: str = "", hint: str = "") -> None:
        super().__init__(what, why=why, hint=hint)
        self.context = context
        self.report_id: uuid.UUID | None = None


def write_suspensions(
    connection: Connection,
    host_name: str,
    lock: RoutingLock,
    *,
    rows: Sequence[SuspendedRow] = (),
    reports: Sequence[RoutingFailureReport] = (),
    messages: Sequence[Message] = (),
) -> None:
    """Write suspended instances and reports, and one reference to each report and to each of the ``messages``."""
    if rows or reports:
        write_suspended(connection, host_name, [*rows, *(report.to_suspended_row() for report in reports)])
    stored = [*messages, *(report.message for report in reports)]
    write_message_references(connection, lock, stored, np.ones(len(stored), dtype=np.int64))


def publish_reports(connection: Connection, host: Host, reports: Sequence[RoutingFailureReport]) -> None:
    """Write reports about messages that are not stored, in a transaction of their own."""

    def work(connection: Connection) -> None:
        write_messages(connection, [(report.message, report.context.to_json()) for report in reports])
        write_suspensions(connection, host.name.lower(), lock_routing(connection), reports=reports)

    transaction(connection, work)
