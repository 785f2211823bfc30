"""What stands before the stream of a receive location: claiming files, or numbering what adapters have handed over."""

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
from postroom.spark.intake.standing_by import StandingBy


class TakingIn(Protocol):
    """Gives the stream its rows, for one location and over one session. Used by one thread."""

    def scan(self) -> Scan:
        """Looks once; not active while another process does it for this location."""
        ...

    def next_look(self, longest: timedelta) -> timedelta:
        """How long to wait before the next scan has something to find, at most ``longest``."""
        ...

    def release(self) -> None:
        """Lets another process do it."""
        ...


def taking_in(connection: Connection, location: ReceiveLocation, home: Path, clock: Clock) -> TakingIn:
    """What a location of this kind needs."""
    if location.adapter.is_row_stream:
        return StandingBy(connection, location, home, clock)
    return (Claimer if location.adapter.watched_folder else InboxNumbering)(connection, location, home, clock)


def to_serve(connection: Connection, location: ReceiveLocation, now: datetime) -> ReceiveLocation | None:
    """The location as it is to be served now, None if there is nothing to do for it. What was accepted or claimed is
    published, although the location was disabled meanwhile or is outside its schedule: enabled or not says there
    whether it may claim anything new."""
    if location.receives_at(now):
        return location
    try:
        files = location.adapter.watched_folder is not None
    except DefinitionError:
        return None  # nothing can be done for an adapter that cannot be loaded; when it is enabled, that is told
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
