"""Routing failure reports: what a message's context was when nobody subscribed to it. A context and no body."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

from postroom.agent.contexts import plain_decimal
from postroom.message import Context
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.writing import Cause, SuspendedRow, Task


@dataclass(frozen=True, kw_only=True)
class RoutingFailureReport:
    """A suspended instance that cannot be resumed; it goes when the instance that it is about goes."""

    message_id: uuid.UUID
    instance_id: uuid.UUID
    related_instance_id: uuid.UUID | None
    host_id: int
    context: Context
    description: str

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
            related_instance_id=self.related_instance_id,
        )


def snapshot(shared: Context, columns: Mapping[str, pa.Array], row: int) -> Context:
    """The context of one row of a batch, promoted flags and all."""
    own = {key: column[row].as_py() for key, column in columns.items()}
    values = {key: plain_decimal(value) if isinstance(value, Decimal) else value for key, value in own.items()}
    return Context(
        {**shared.promoted, **{key: value for key, value in values.items() if value is not None}}, shared.written
    )
