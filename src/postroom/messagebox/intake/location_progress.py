"""Stores the progress of running receive locations, for ``postroom pipeline show``.

progress = LocationProgress(location_id=location.location_id, rows=12_000, rate=850.0)
report = LocationReport()
report.store(connection, progress)          # writes changes, at most once a second
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from psycopg.rows import dict_row

from postroom.clock import Clock
from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.queues import to_storable_text
from postroom.messagebox.statements import statement

_MIN_INTERVAL = 1.0
_RATE_SECONDS = 10.0


class LocationState(Enum):
    """The state of a running receive location."""

    STARTING = "starting"
    RECEIVING = "receiving"
    THROTTLED = "throttled"
    FAILING = "failing"


@dataclass(frozen=True, kw_only=True)
class LocationProgress:
    """The progress of a receive location since it was started.

    ``rate`` is the recent number of messages per second. ``remaining`` is the known backlog in ``remaining_unit``
    (files, interchanges, bytes, rows).
    """

    location_id: uuid.UUID
    state: LocationState = LocationState.RECEIVING
    reason: str | None = None
    rows: int = 0
    suspended: int = 0
    rate: float = 0.0
    remaining: int | None = None
    remaining_unit: str | None = None
    last_batch_at: datetime | None = None


class LocationReport:
    """Stores the progress of one location. Used by one thread."""

    def __init__(self) -> None:
        self._stored: LocationProgress | None = None
        self._next_at = 0.0

    def store(self, connection: Connection, progress: LocationProgress) -> None:
        """Store changed progress. With an unchanged state, store it at most once a second."""
        stored, now = self._stored, time.monotonic()
        if progress == stored:
            return
        if stored is not None and progress.state is stored.state and now < self._next_at:
            return
        self._next_at = now + _MIN_INTERVAL
        store_progress(connection, "queries/report_running_location", asdict(progress), first=stored is None)
        self._stored = progress

    def delete(self, connection: Connection, location_id: uuid.UUID) -> None:
        """Delete the progress: this process no longer serves the location."""
        self._stored = None
        connection.execute(
            "DELETE FROM messagebox.running_locations WHERE location_id = %s AND server = %s AND pid = %s",
            (location_id, socket.gethostname(), os.getpid()),
        )


def store_progress(connection: Connection, query: str, progress: Mapping[str, Any], *, first: bool) -> None:
    """Store the progress of a receive location or a sink. ``first`` is True if this process has not stored any yet."""
    reason = progress["reason"]
    with connection.transaction():
        # The progress is stored again soon, so do not wait for the disk.
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute(
            statement(query),
            {
                **progress,
                "state": progress["state"].value,
                "reason": None if reason is None else to_storable_text(reason),
                "server": socket.gethostname(),
                "pid": os.getpid(),
                "first": first,
            },
        )


def was_killed(connection: Connection, location_id: uuid.UUID) -> bool:
    """Return True if the last process that served a location ended without deleting its progress."""
    found = "SELECT count(*) FROM messagebox.running_locations WHERE location_id = %s"
    return bool(read_value(connection, found, location_id))


class Rate:
    """Messages per second over the last ten seconds. Several threads use it: a deque is thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._started = monotonic()
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        self._counts.append((self._monotonic(), count))

    def per_second(self) -> float:
        """Return the rate over the window, or since the start if that is shorter. Rounded."""
        now = self._monotonic()
        while self._counts and self._counts[0][0] < now - _RATE_SECONDS:
            self._counts.popleft()
        elapsed = max(1.0, min(_RATE_SECONDS, now - self._started))
        return round(sum(count for _, count in tuple(self._counts)) / elapsed, 1)


class LocationMeter:
    """What a location has received since its start. Several threads count."""

    def __init__(self, location_id: uuid.UUID, clock: Clock) -> None:
        self._location_id = location_id
        self._clock = clock
        self._lock = threading.Lock()
        #: The number of interchanges (files), and of messages by what became of them.
        self.counts: Counter[str] = Counter()
        #: The sum of the times from the arrival of interchanges to their publication.
        self.milliseconds = 0
        self.last_batch_at: datetime | None = None
        self._rate = Rate()

    def add(self, received: Mapping[str, int], *, milliseconds: int = 0) -> None:
        """Count what was received, if it is anything."""
        with self._lock:
            self.counts.update(received)
            self.milliseconds += milliseconds
            if any(received.values()):
                self._rate.add(received["published"])
                self.last_batch_at = self._clock()

    def build_progress(self, state: LocationState, reason: str | None) -> LocationProgress:
        return LocationProgress(
            location_id=self._location_id,
            state=state,
            reason=reason,
            rows=self.counts["published"],
            suspended=self.counts["suspended"],
            rate=self._rate.per_second(),
            last_batch_at=self.last_batch_at,
        )


def read_location_rows(connection: Connection) -> list[dict[str, Any]]:
    """Return every receive location with the last report of the process that serves it or served it."""
    return connection.cursor(row_factory=dict_row).execute(statement("queries/list_receive_locations")).fetchall()


def read_reported_states(connection: Connection) -> dict[uuid.UUID, tuple[LocationState, str | None]]:
    """Return the last reported state of each location, and the reason why it is throttled or failing."""
    rows = connection.execute("SELECT location_id, state, reason FROM running_locations")
    return {location_id: (LocationState(state), reason) for location_id, state, reason in rows}


def count_unfinished_files(connection: Connection) -> dict[uuid.UUID, int]:
    """Return the number of files and interchanges of each receive location that are not finished."""
    return dict(connection.execute(statement("queries/unfinished_files")).fetchall())
