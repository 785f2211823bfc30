"""Stores the progress of running receive locations, for ``postroom pipeline show``.

progress = LocationProgress(location_id=location.location_id, rows=12_000, rate=850.0)
report = LocationReport()
report.store(connection, progress)          # writes changes, at most once a second
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from psycopg.rows import dict_row

from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.queues import to_storable_text
from postroom.messagebox.statements import statement

_MIN_INTERVAL = 1.0


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
