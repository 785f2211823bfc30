"""The settings of a host instance that are not stored in the MessageBox."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta

from postroom.messagebox.jobs import JobSettings


def _hundred_per_processor() -> int:
    return 100 * (os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of a host instance. The defaults are for production, and tests shorten the times."""

    #: Maximum number of claimed messages in memory. The host dequeues no more messages above it.
    memory_queue: int = field(default_factory=_hundred_per_processor)
    #: How long messages in progress may take to finish after the host was stopped.
    stop_within: timedelta = timedelta(seconds=30)
    #: How often the connection that holds the lock is checked for still being the same session.
    heartbeat: timedelta = timedelta(seconds=5)
    #: The configuration is read again after this time, even if the routing version has not changed.
    configuration_age: timedelta = timedelta(seconds=60)
    #: True if this instance runs housekeeping jobs.
    runs_jobs: bool = True
    jobs: JobSettings = field(default_factory=JobSettings)
