"""The intake of a receive location: claims files, or numbers the rows of the inbox, for its stream."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from postroom.clock import Clock
from postroom.errors import DefinitionError
from postroom.messagebox import inbox
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claims import Claimer, Scan
from postroom.spark.intake.inbox_numbering import InboxNumbering
from postroom.spark.intake.location_lock import LocationLock


class Intake(Protocol):
    """Gives the stream of one location its rows, over one session. Used by one thread."""

    def scan(self) -> Scan:
        """Look for new rows once. The scan is not active while another process serves this location."""
        ...

    def next_look(self, longest: timedelta) -> timedelta:
        """Return how long to wait before the next scan can find something, at most ``longest``."""
        ...

    def release(self) -> None:
        """Let another process serve the location."""
        ...


class PassiveIntake:
    """The intake of a row stream, which Spark reads by its own offsets. It only holds the location's lock, so that one
    process at a time reads the stream."""

    def __init__(self, connection: Connection, location: ReceiveLocation) -> None:
        self._lock = LocationLock(connection, location.location_id)

    def scan(self) -> Scan:
        return Scan(active=self._lock.is_held())

    def next_look(self, longest: timedelta) -> timedelta:
        return longest

    def release(self) -> None:
        self._lock.release()


def make_intake(connection: Connection, location: ReceiveLocation, home: Path, clock: Clock) -> Intake:
    """Return the intake for the adapter of a location."""
    if location.adapter.is_row_stream:
        return PassiveIntake(connection, location)
    return (Claimer if location.adapter.watched_folder else InboxNumbering)(connection, location, home, clock)


def location_to_serve(connection: Connection, location: ReceiveLocation, now: datetime) -> ReceiveLocation | None:
    """Return the location as it has to be served now, or None if there is nothing to do for it.

    Accepted requests and claimed files are published even if the location was disabled since or is outside its
    schedule. Then ``enabled`` of the returned location tells whether it may claim new files."""
    if location.receives_at(now):
        return location
    try:
        files = location.adapter.watched_folder is not None
    except DefinitionError:
        return None  # an adapter that cannot be loaded is reported when its location is enabled
    if files:
        return replace(location, enabled=False) if claims.outstanding(connection, location.location_id) else None
    # An adapter that is disabled accepts nothing. What is in the inbox it has accepted before.
    return replace(location, enabled=True) if inbox.has_rows(connection, location.location_id) else None


def is_drained(connection: Connection, location: ReceiveLocation) -> bool:
    """Whether the stream has published everything that it was given. What is in its source waits there."""
    if location.adapter.is_row_stream:
        return True
    newest = claims.newest if location.adapter.watched_folder else inbox.newest
    return newest(connection, location.location_id, 0, 1) == 0
