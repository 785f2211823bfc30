"""Which receive locations a pipeline process serves, and when a single run has claimed what is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError
from postroom.messagebox.configuration.hosts import Host, is_host_stopped
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake import file_claims, inbox
from postroom.messagebox.intake.numbered_interchanges import find_last_number
from postroom.ports.receive_locations import ReceiveLocation, find_receive_location, read_receive_locations
from postroom.receiving.numbered_receive_adapter import Scan


def read_running_locations(connection: Connection, host: Host) -> list[ReceiveLocation]:
    """Return the locations of a host, or none if an operator has stopped the host."""
    stopped = is_host_stopped(connection, host.host_id)
    return [] if stopped else read_receive_locations(connection, host_id=host.host_id)


def select_locations_to_serve(
    connection: Connection, locations: Iterable[ReceiveLocation], *, clock: Clock = system_clock
) -> list[ReceiveLocation]:
    """Return those locations that receive now, or that have something left to publish."""
    now = clock()
    to_serve = (select_location_to_serve(connection, location, now) for location in locations)
    return [location for location in to_serve if location is not None]


def select_location_to_serve(
    connection: Connection, location: ReceiveLocation, now: datetime
) -> ReceiveLocation | None:
    """Return the location as it has to be served now, or None if there is nothing to do for it.

    Accepted requests and claimed files are published even if the location was disabled since or is outside its
    schedule: ``enabled`` of the returned location says whether it may claim new files. A location whose messages a host
    publishes itself is returned only while something is left to publish."""
    if location.receives_at(now) and location.is_published_on_spark:
        return location
    try:
        is_file_location = location.watched_folder is not None
    except DefinitionError:
        return None  # an adapter that cannot be loaded is reported when its location is enabled
    if is_file_location:
        outstanding = file_claims.count_outstanding(connection, location.location_id)
        return replace(location, enabled=False) if outstanding else None
    # The rows of the inbox were accepted before the location was disabled, so they are published. ``enabled`` is True
    # because it has no meaning for the inbox.
    return replace(location, enabled=True) if inbox.has_rows(connection, location.location_id) else None


def is_served_as_configured(connection: Connection, location: ReceiveLocation, clock: Clock = system_clock) -> bool:
    """Return True if the location has to be served now as given. It may have changed while this process was frozen or
    cut off from the MessageBox."""
    found = find_receive_location(connection, location.location_id)
    return found is not None and select_location_to_serve(connection, found, clock()) == location


def is_drained(connection: Connection, location: ReceiveLocation) -> bool:
    """Return True if the stream has published all numbered rows. A row stream keeps its rows in its source."""
    return location.adapter.is_row_stream or find_last_number(connection, location.location_id, 0, 1) == 0


class LastScan:
    """Finds the last scan of a single run: from then on, everything is claimed that was there. Files that still change
    are left for the next run."""

    def __init__(self, location: ReceiveLocation, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        watched = location.watched_folder
        #: How long every file has had time to settle.
        self._seconds = 1.0 + (2 * watched.settle if watched else 0.0)
        self._monotonic = monotonic
        self._settled_at: float | None = None

    def is_last(self, scan: Scan, *, is_drained: bool) -> bool:
        """Return True after the last scan. ``is_drained`` says whether everything was published before the scan."""
        # A paused scan has found nothing. A full one continues when more is published, unless nothing can be.
        continues = scan.paused or (scan.more and (scan.claimed > 0 or not is_drained))
        if continues or self._settled_at is None:
            self._settled_at = self._monotonic() + self._seconds
        return not continues and (not (scan.settling or scan.more) or self._monotonic() > self._settled_at)
