"""The states of service instances."""

from __future__ import annotations

from enum import IntEnum


class InstanceState(IntEnum):
    """The states with BizTalk's codes. An orchestration that waits is dehydrated. A messaging instance that waits for
    its next attempt is retrying, which has a code of our own, and one that waits for the service window of its port is
    scheduled (INS-03)."""

    READY_TO_RUN = 1
    ACTIVE = 2
    SUSPENDED = 4
    DEHYDRATED = 8
    SUSPENDED_NOT_RESUMABLE = 32
    SCHEDULED = 256
    RETRYING = 1024

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    InstanceState.READY_TO_RUN: "ready to run",
    InstanceState.ACTIVE: "active",
    InstanceState.SUSPENDED: "suspended",
    InstanceState.DEHYDRATED: "waiting",
    InstanceState.SUSPENDED_NOT_RESUMABLE: "suspended, not resumable",
    InstanceState.SCHEDULED: "scheduled",
    InstanceState.RETRYING: "waiting to retry",
}
