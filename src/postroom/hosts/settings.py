"""The settings of a host instance."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta

from postroom.messagebox.coordination.heartbeat import HEARTBEAT_SECONDS
from postroom.messagebox.maintenance.jobs import JobSettings


def _get_default_memory_queue() -> int:
    return 100 * (os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of a host instance. The defaults are for production, and tests shorten the times."""

    #: Maximum number of claimed messages in memory. The host dequeues no more messages above it.
    memory_queue: int = field(default_factory=_get_default_memory_queue)
    #: How long messages in progress may take to finish after the host was stopped.
    stop_within: timedelta = timedelta(seconds=30)
    #: How long callers may wait for their responses after the host was stopped. Then they get a 503.
    answer_within: timedelta = timedelta(seconds=6)
    #: How often a statement is sent on the connection that holds the lock. PostgreSQL ends the session after 8 s
    #: without one.
    heartbeat: timedelta = timedelta(seconds=HEARTBEAT_SECONDS)
    #: How long an orchestration may run without waiting. It is suspended then.
    turn_limit: timedelta = timedelta(seconds=30)
    #: How long a call may keep the interpreter lock, so that no thread runs. The process ends then.
    blocked_limit: timedelta = timedelta(seconds=60)
    #: True if this instance runs housekeeping jobs.
    runs_jobs: bool = True
    jobs: JobSettings = field(default_factory=JobSettings)
