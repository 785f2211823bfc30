"""How a host instance behaves where the MessageBox does not say so."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta

from postroom.messagebox.jobs import JobSettings


def _hundred_per_processor() -> int:
    return 100 * (os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The defaults are for production; tests shorten the times."""

    #: How many claimed messages may wait in memory; when they are that many, nothing more is dequeued.
    memory_queue: int = field(default_factory=_hundred_per_processor)
    #: How long work that is under way may take to finish after the host was told to stop.
    stop_within: timedelta = timedelta(seconds=30)
    #: How often the connection that holds the lock is asked whether it is still the same session.
    heartbeat: timedelta = timedelta(seconds=5)
    #: After this time configuration is read again, whether or not the routing version changed.
    configuration_age: timedelta = timedelta(seconds=60)
    #: Whether this instance takes its turn at the housekeeping.
    runs_jobs: bool = True
    jobs: JobSettings = field(default_factory=JobSettings)
