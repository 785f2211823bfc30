"""The context properties with which a publisher or a pipeline decides what happens when its message fails."""

from __future__ import annotations

from postroom.message import Context
from postroom.system_properties import BTS


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
