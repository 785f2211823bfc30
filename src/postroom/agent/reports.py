"""Routing failure reports: what a message's context was when nobody subscribed to it. A context and no body."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa

from postroom.agent.contexts import plain_decimal
from postroom.agent.identity import id_array
from postroom.errors import RoutingFailure
from postroom.message import Context, Message
from postroom.messagebox.configuration import Host, ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.writing import Cause, SuspendedRow, Task, write_message, write_references, write_suspended
from postroom.namespaces import is_distinguished


@dataclass(frozen=True, kw_only=True)
class RoutingFailureReport:
    """A suspended instance that cannot be resumed; it goes when the instance that it is about goes."""

    message_id: uuid.UUID
    instance_id: uuid.UUID
    related_instance_id: uuid.UUID | None
    host_id: int
    context: Context
    description: str
    adapter: str | None = None
    uri: str | None = None
    """Where the message came in, if it came in; a program that publishes has nothing like it."""

    def row(self) -> SuspendedRow:
        return SuspendedRow(
            message_id=self.message_id,
            instance_id=self.instance_id,
            host_id=self.host_id,
            service_class=ServiceClass.ROUTING_FAILURE_REPORT,
            service_id=None,
            task=Task.DELIVER,
            cause=Cause.ROUTING_FAILURE_REPORT,
            error_code="ROUTING",
            error_description=self.description,
            resumable=False,
            adapter=self.adapter,
            uri=self.uri,
            related_instance_id=self.related_instance_id,
        )


class Unroutable(RoutingFailure):
    """A message that nobody subscribes to, with its context as it was, and the report about it once there is one."""

    def __init__(self, what: str, context: Context, *, why: str = "", hint: str = "") -> None:
        super().__init__(what, why=why, hint=hint)
        self.context = context
        self.report_id: uuid.UUID | None = None


def write_reports(
    connection: Connection,
    host: Host,
    reports: Sequence[RoutingFailureReport],
    *,
    suspended: Sequence[SuspendedRow] = (),
    messages: Sequence[Message] = (),
) -> None:
    """Reports, and with them suspended instances whose messages are stored already, each with its one reference."""
    for report in reports:
        write_message(connection, Message(message_id=report.message_id), report.context.to_json())
    log = connection.execute("SELECT message_log, part_log FROM lock_routing()").fetchone()
    assert log is not None
    write_suspended(connection, host.name.lower(), [*suspended, *(report.row() for report in reports)])
    ids = [message.message_id for message in messages] + [report.message_id for report in reports]
    parts = [part.part_id for message in messages for part in message.parts]
    for kind, number, what in (("message", log[0], ids), ("part", log[1], parts)):
        write_references(connection, kind, number, id_array(what), np.ones(len(what), dtype=np.int64))


def snapshot(shared: Context, columns: Mapping[str, pa.Array], row: int) -> Context:
    """The context of one row of a batch, promoted flags and all."""
    own = {key: column[row].as_py() for key, column in columns.items()}
    values = {key: plain_decimal(value) if isinstance(value, Decimal) else value for key, value in own.items()}
    there = {key: value for key, value in values.items() if value is not None}
    return Context(
        {**shared.promoted, **{key: value for key, value in there.items() if not is_distinguished(key)}},
        {**shared.written, **{key: value for key, value in there.items() if is_distinguished(key)}},
        shared.predicates,
    )
