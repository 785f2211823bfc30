"""The services of a host as monitoring sees them: every kind of subscriber, and every receive location."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from postroom.messagebox.connection import Connection, read_records
from postroom.messagebox.orchestrations import format_name

#: The kind of a receive location. The other kinds are subscribers.
LOCATION = "location"
#: The kind of a send port that Spark serves.
SINK = "sink"
#: The states of every kind of service that others than this module know.
FAILING, STARTED, STARTING, RECEIVING = "failing", "started", "starting", "receiving"


@dataclass(frozen=True, kw_only=True)
class MonitoredService:
    """A service of a host: a send port, a sink, an orchestration, a program or a receive location."""

    service_id: uuid.UUID
    kind: str
    name: str
    version: int | None
    """Of an orchestration."""
    state: str | None
    """failing; bound, stopped or started; a program may be unused; a location is starting, receiving or throttled, and
    has no state if no process serves it."""
    reason: str | None
    """Why it is failing or throttled, or what a location receives."""
    has_problem: bool
    """True if it is failing because a running process cannot serve it."""
    waiting: int
    """The number of its messages in the queues that are not suspended."""
    retrying: int
    """How many of them have failed and wait for their next attempt."""
    suspended: int
    age: float
    """Of the oldest message that waits, in seconds."""
    quarantined: int
    """The number of files and of inbox rows that the location does not read any more."""
    last_problem: str | None
    """The problem of the last of them."""

    @property
    def display_name(self) -> str:
        """The name; of an orchestration with its version."""
        return self.name if self.version is None else format_name(self.name, self.version)


def read_monitored_services(connection: Connection, host: str) -> list[MonitoredService]:
    """Return the services of a host, by name."""
    return read_records(connection, MonitoredService, f"SELECT * FROM read_services_{host.lower()}()")
