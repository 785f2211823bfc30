"""The intake of a receive location: it claims files, or numbers the rows of the inbox, for the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError
from postroom.messagebox import inbox
from postroom.messagebox.configuration.hosts import Host, is_host_stopped
from postroom.messagebox.connection import Connection
from postroom.messagebox.streams import file_claims
from postroom.messagebox.streams.file_claims import FileClaim
from postroom.messagebox.streams.location_lock import LocationLock
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.receiving.files.file_claimer import FileClaimer, Scan
from postroom.receiving.inbox_rows import InboxNumbering


class Intake(Protocol):
    """Gives the stream of one location its rows, over one session. Used by one thread."""

    def scan(self) -> Scan:
        """Scan for new rows once. The scan is not active while another process serves this location."""
        ...

    def next_scan_in(self, longest: timedelta) -> timedelta:
        """Return the time until the next scan can find something, at most ``longest``."""
        ...

    def release(self) -> None:
        """Let another process serve the location."""
        ...


class PassiveIntake:
    """The intake of a row stream, which Spark reads by its own offsets. It only holds the lock of the location, so that
    one process at a time reads the stream."""

    def __init__(self, connection: Connection, location: ReceiveLocation) -> None:
        self._lock = LocationLock(connection, location.location_id)

    def scan(self) -> Scan:
        return Scan(active=self._lock.acquire())

    def next_scan_in(self, longest: timedelta) -> timedelta:
        return longest

    def release(self) -> None:
        self._lock.release()


def make_intake(
    connection: Connection,
    location: ReceiveLocation,
    home: Path,
    clock: Clock,
    *,
    makes_folder: bool = True,
    receive_in_process: Callable[[FileClaim], bool] | None = None,
) -> Intake:
    """Return the intake for the adapter of a location. With ``makes_folder``, create its watched folder if that is
    missing."""
    if location.adapter.is_row_stream:
        return PassiveIntake(connection, location)
    if location.watched_folder:
        return FileClaimer(
            connection, location, home, clock, makes_folder=makes_folder, receive_in_process=receive_in_process
        )
    return InboxNumbering(connection, location)


def find_locations_to_serve(
    connection: Connection, host: Host, *, clock: Clock = system_clock
) -> list[ReceiveLocation]:
    """Return the locations of a host that receive now, or that have something left to publish."""
    return select_locations_to_serve(connection, read_running_locations(connection, host), clock=clock)


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
    schedule. Then ``enabled`` of the returned location is True if it may claim new files. A host publishes what it
    receives without Spark."""
    if location.receives_at(now) and location.is_received_on_spark:
        return location
    try:
        is_file_location = location.watched_folder is not None
    except DefinitionError:
        return None  # an adapter that cannot be loaded is reported when its location is enabled
    if is_file_location:
        outstanding = file_claims.count_outstanding(connection, location.location_id)
        return replace(location, enabled=False) if outstanding else None
    # A disabled adapter accepts nothing, so it has accepted the rows of the inbox before.
    return replace(location, enabled=True) if inbox.has_rows(connection, location.location_id) else None


def is_served_as_configured(connection: Connection, location: ReceiveLocation, clock: Clock = system_clock) -> bool:
    """Return True if the location has to be served now as given. It may have changed while this process was frozen or
    cut off from the MessageBox."""
    locations = read_receive_locations(connection, host_id=location.host_id)
    found = next((found for found in locations if found.location_id == location.location_id), None)
    return found is not None and select_location_to_serve(connection, found, clock()) == location


def is_drained(connection: Connection, location: ReceiveLocation) -> bool:
    """Return True if the stream has published all numbered rows. A row stream keeps its rows in its source."""
    if location.adapter.is_row_stream:
        return True
    find_last_number = file_claims.find_last_number if location.watched_folder else inbox.find_last_number
    return find_last_number(connection, location.location_id, 0, 1) == 0


_SCAN_INTERVAL, _MIN_WAIT_SECONDS = timedelta(seconds=0.2), 0.02


def receive_all(
    intake: Intake,
    publish: Callable[[], object],
    *,
    settle: timedelta,
    stopping: threading.Event,
    monotonic: Callable[[], float] = time.monotonic,
) -> bool:
    """Claim the settled files and call ``publish``, until nothing is left. A round claims at most as much as one scan
    does. Return False if another process serves the location."""
    first = True
    while True:
        claimed, scan = _claim_settled(intake, settle, stopping, monotonic)
        if not scan.active:
            return False
        # The first round publishes what an earlier process has left, even if nothing was claimed. A later round that
        # can claim nothing is the last: the outstanding files cannot be published now.
        if first or claimed:
            publish()
        if not scan.more or stopping.is_set() or not (first or claimed):
            return True
        first = False


def _claim_settled(
    intake: Intake, settle: timedelta, stopping: threading.Event, monotonic: Callable[[], float]
) -> tuple[int, Scan]:
    """Scan until every file has had time to settle. Files that still change are left for the next run."""
    deadline = monotonic() + 2 * settle.total_seconds() + 1
    claimed = 0
    while True:
        scan = intake.scan()
        claimed += scan.claimed
        # A paused scan has found nothing. The pause ends with the backup's copy of the files.
        is_done = not scan.paused and (not scan.settling or scan.more or monotonic() > deadline)
        if not scan.active or is_done or stopping.is_set():
            return claimed, scan
        stopping.wait(max(intake.next_scan_in(_SCAN_INTERVAL).total_seconds(), _MIN_WAIT_SECONDS))
