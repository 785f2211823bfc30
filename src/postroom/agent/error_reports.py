"""Error messages: what failed-message routing publishes in place of a suspension.

An error message is a clone of what failed: its parts, and its properties, none of them promoted any more, so that no
subscriber of the original gets it by accident. What is promoted is the report: ErrorReport.ErrorType and its
neighbours (FMR-03, 04).
"""

from __future__ import annotations

import platform
import uuid
from dataclasses import dataclass
from datetime import datetime

from postroom.message import Context
from postroom.messagebox.queues import to_storable_text
from postroom.namespaces import ERROR_REPORT_NAMESPACE, SUSPENDED_NAMESPACE, split_key
from postroom.properties import Property
from postroom.system_properties import BTS, ErrorReport
from postroom.values import MAX_PROMOTED_LENGTH, Value

FAILED_MESSAGE = "FailedMessage"

_OTHER = "0xe0000000"
#: ErrorReport.FailureCode by our own code. BizTalk's, where the failure is one of its own; the others have the bit that
#: marks a code as not Microsoft's (ADR 0018).
FAILURE_CODES = {
    "ROUTING": "0xc0c01680",
    "DELIVERY": "0xc0c0167a",
    "PIPELINE": "0xe0000001",
    "DELIVERY_REFUSED": "0xe0000002",
    "MESSAGE_GONE": "0xe0000003",
    "UNEXPECTED": "0xe0000004",
    "ADDRESS": "0xe0000005",
    "AUTHENTICATION": "0xe0000006",
    "BAD_VALUE": "0xe0000007",
    "MAP": "0xe0000008",
    "STORAGE": "0xe0000009",
}


def to_failure_code(code: str) -> str:
    """ErrorReport.FailureCode for one of our codes; adapters may bring codes of their own."""
    return FAILURE_CODES.get(code, _OTHER)


def is_error_report(context: Context) -> bool:
    """Is this an error message already? One that fails is suspended, or errors could go round for ever."""
    return context.is_promoted(ErrorReport.ErrorType)


def get_message_type(context: Context) -> str | None:
    """The message type that a context tells, promoted or not."""
    message_type = context.get(BTS.MessageType)
    return None if message_type is None else str(message_type)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A message that could not go on at a port, and all that there is to say about it."""

    code: str
    description: str
    message_id: uuid.UUID
    instance_id: uuid.UUID
    """The instance that would have been suspended."""
    failed_at: datetime
    adapter: str | None = None
    receive_port: str | None = None
    send_port: str | None = None
    uri: str | None = None
    message_type: str | None = None
    report_id: uuid.UUID | None = None
    """The routing failure report, if it is one."""

    def build_context(self, original: Context) -> Context:
        """The context of the error message about a message with this context."""
        demoted = {
            key: value
            for key, value in original.demote_all().written.items()
            if split_key(key)[0] not in (ERROR_REPORT_NAMESPACE, SUSPENDED_NAMESPACE)
        }
        inbound = self.receive_port is not None
        promoted: dict[Property, str | int | None] = {
            ErrorReport.ErrorType: FAILED_MESSAGE,
            ErrorReport.FailureCode: to_failure_code(self.code),
            ErrorReport.FailureCategory: 0,
            ErrorReport.MessageType: self.message_type,
            ErrorReport.ReceivePortName: self.receive_port,
            ErrorReport.InboundTransportLocation: self.uri if inbound else None,
            ErrorReport.SendPortName: self.send_port,
            ErrorReport.OutboundTransportLocation: None if inbound else self.uri,
            ErrorReport.RoutingFailureReportID: None if self.report_id is None else str(self.report_id),
        }
        written: dict[str, Value] = {
            ErrorReport.Description.key: to_storable_text(self.description),
            ErrorReport.FailureTime.key: self.failed_at,
            ErrorReport.FailureMessageID.key: str(self.message_id),
            ErrorReport.FailureInstanceID.key: str(self.instance_id),
            ErrorReport.ProcessingServer.key: platform.node(),
        }
        if self.adapter is not None:
            written[ErrorReport.FailureAdapter.key] = self.adapter
        return Context(
            {prop.key: _truncate(value) for prop, value in promoted.items() if value is not None},
            {**demoted, **written},
            # Whoever may not have the message may not have the error message either.
            original.predicates,
        )


def _truncate(value: str | int) -> Value:
    return value[:MAX_PROMOTED_LENGTH] if isinstance(value, str) else value
