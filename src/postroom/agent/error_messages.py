"""Error messages: failed-message routing publishes them instead of suspending the message.

An error message has the parts and the properties of the failed message. Its properties are demoted, so that no
subscriber of the original receives it. Only the properties of the ErrorReport namespace are promoted (FMR-03, 04).
"""

from __future__ import annotations

import platform
import uuid
from dataclasses import dataclass
from datetime import datetime

from postroom.message import Context
from postroom.messagebox.queues import to_storable_text
from postroom.properties import ERROR_REPORT_NAMESPACE, SUSPENDED_NAMESPACE, Property, split_key
from postroom.system_properties import BTS, ErrorReport
from postroom.values import MAX_PROMOTED_LENGTH, Value

FAILED_MESSAGE = "FailedMessage"

_OTHER_FAILURE_CODE = "0xe0000000"
#: ErrorReport.FailureCode by Postroom's code: BizTalk's code where it has one. The other codes have the bit that marks
#: a code as not Microsoft's (ADR 0018).
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
    "EXPIRED": "0xe000000a",
    # A suspended orchestration, which may answer when it is resumed (int_fault_requests).
    "ORCHESTRATION": "0xe000000b",
}


def to_failure_code(code: str) -> str:
    """Return ErrorReport.FailureCode for a code. Adapters may have codes of their own."""
    return FAILURE_CODES.get(code, _OTHER_FAILURE_CODE)


def is_error_report(context: Context) -> bool:
    """Return True for an error message. An error message that fails is suspended, to prevent an endless loop."""
    return context.is_promoted(ErrorReport.ErrorType)


def get_message_type(context: Context) -> str | None:
    """Return the message type in a context, promoted or not."""
    message_type = context.get(BTS.MessageType)
    return None if message_type is None else str(message_type)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The failure of a message at a port."""

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
    """The routing failure report, if the message has no subscriber."""

    def build_context(self, original: Context) -> Context:
        """Return the context of the error message about a message with the context ``original``."""
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
            # A host that may not receive the message may not receive the error message either.
            original.predicates,
        )


def _truncate(value: str | int) -> Value:
    return value[:MAX_PROMOTED_LENGTH] if isinstance(value, str) else value


def is_suspended_as_non_resumable(context: Context) -> bool:
    """Return True if the message cannot be resumed after a failure has suspended it (INS-13)."""
    return context.get(BTS.SuspendAsNonResumable) is True


def is_returned_to_adapter(context: Context) -> bool:
    """Return True if the receive adapter decides about an interchange that its pipeline rejects (INS-14). It is not
    suspended."""
    return context.get(BTS.ActionOnFailure) == 0


def has_routing_failure_report(context: Context) -> bool:
    """Return True if a report is written when the message has no subscriber."""
    return context.get(BTS.SuppressRoutingFailureDiagnosticInfo) is not True
