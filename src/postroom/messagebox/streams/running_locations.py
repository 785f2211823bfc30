"""What receive locations that run say of themselves, for ``postroom pipeline show``.

progress = LocationProgress(location_id=location.location_id, rows=12_000, rate=850.0)
report = LocationReport()
report.tell(connection, progress)          # writes if something changed, once a second at most
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum

from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import to_storable_text
from postroom.messagebox.statements import statement

_AT_MOST_EVERY = 1.0


class LocationState(Enum):
    """How a receive location that runs is getting on."""

    STARTING = "starting"
    RECEIVING = "receiving"
    THROTTLED = "throttled"
    FAILING = "failing"


@dataclass(frozen=True, kw_only=True)
class LocationProgress:
    """How far a receive location has come since it was started. ``rate`` is messages a second, of late; ``remaining``
    is what is known to be left, in ``remaining_unit`` (files, interchanges, bytes, rows)."""

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
    """Writes the progress of one location, as often as it is worth it. Used by one thread."""

    def __init__(self) -> None:
        self._told: LocationProgress | None = None
        self._tell_at = 0.0

    def tell(self, connection: Connection, progress: LocationProgress) -> None:
        """Stores what is new; nothing if nothing is, or if the last time was just now and the state is the same."""
        told, now = self._told, time.monotonic()
        if progress == told:
            return
        if told is not None and progress.state is told.state and now < self._tell_at:
            return
        self._tell_at = now + _AT_MOST_EVERY
        with connection.transaction():
            # Told again in a moment; not worth waiting for the disk.
            connection.execute("SET LOCAL synchronous_commit = off")
            connection.execute(
                statement("queries/report_running_location"),
                {
                    **asdict(progress),
                    "state": progress.state.value,
                    "reason": None if progress.reason is None else to_storable_text(progress.reason),
                    "server": socket.gethostname(),
                    "pid": os.getpid(),
                    "first": told is None,
                },
            )
        self._told = progress

    def end(self, connection: Connection, location_id: uuid.UUID) -> None:
        """The location is not served by this process any more."""
        self._told = None
        connection.execute(
            "DELETE FROM management.running_locations WHERE location_id = %s AND server = %s AND pid = %s",
            (location_id, socket.gethostname(), os.getpid()),
        )
