"""List, enable, disable and schedule receive locations."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from postroom.application import Schedule
from postroom.clock import Clock, system_clock
from postroom.errors import NONE_APPLIED, DefinitionError, StateError, find_named
from postroom.files.safe_files import make_folder
from postroom.messagebox.audit import record_action
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.running_processes import ProcessKind, list_running_processes
from postroom.messagebox.intake.location_lock import find_locked_locations
from postroom.messagebox.intake.location_progress import (
    LocationState,
    read_location_rows,
    read_reported_states,
)
from postroom.messagebox.intake.row_streams import request_reset
from postroom.messagebox.service_states import set_location_enabled, set_location_schedule
from postroom.ports.receive_locations import (
    ReceiveLocation,
    read_receive_locations,
    schedule_to_json,
)


@dataclass(frozen=True, kw_only=True)
class LocationListing:
    """A receive location with its configuration and its progress."""

    location: str
    location_id: uuid.UUID
    port: str
    application: str
    host: str
    adapter: str
    pipeline: str
    uri: str
    enabled: bool
    schedule: str | None
    """When it receives messages. None means always."""
    opens: datetime | None
    """When the schedule opens next. None if it is open now or never opens again."""
    route_failures: bool
    """True if its receive port publishes failures instead of suspending them."""
    two_way: bool
    """Do callers wait for responses? Its host publishes what it receives, without Spark."""
    waiting: int
    """The number of claimed files and of interchanges in the inbox that are not published yet."""
    oldest: datetime | None
    """When the oldest of them was claimed or stored."""
    suspended: int
    problems: Sequence[str]
    """The problems that keep files from being received."""
    state: str
    """disabled; outside its schedule; not running (no process serves it); starting, receiving, throttled or failing."""
    since: datetime | None
    """When the state began. None if no process serves the location."""
    reason: str | None
    """Why it is throttled or failing."""
    published: int | None
    """The number of messages since the location was started. None if no process serves it."""
    rate: float | None
    """Messages per second during the last ten seconds. None if no process serves the location."""
    remaining: int | None
    """How much of the current input is not read yet, if known."""
    remaining_unit: str | None
    last_batch_at: datetime | None


def list_locations(connection: Connection, *, clock: Clock = system_clock) -> list[LocationListing]:
    """Return every receive location, sorted by name."""
    served = {location.location_id for location in list_served_locations(connection, clock=clock)}
    now = clock()
    listed = []
    progress = {row["location_id"]: row for row in read_location_rows(connection)}
    for location in read_receive_locations(connection):
        if location.location_id not in progress:
            continue  # a location that was just deployed
        schedule = location.schedule
        is_open = schedule is None or schedule.is_open(now)
        listing = LocationListing(
            location=location.name,
            port=location.port_name,
            adapter=location.adapter_kind,
            pipeline=str(location.definition["pipeline"]["kind"]),
            uri=location.uri,
            enabled=location.enabled,
            schedule=None if schedule is None else str(schedule),
            opens=None if schedule is None or is_open else schedule.next_opening(now),
            route_failures=location.route_failures,
            two_way=location.is_two_way,
            **progress[location.location_id],
        )
        if location.is_two_way:
            listing = replace(listing, state=LocationState.RECEIVING.value)
        if location.location_id not in served:
            # The last report of a process that has ended is out of date.
            closed = "not running" if is_open else "outside its schedule"
            state = closed if listing.enabled else "disabled"
            listing = replace(listing, state=state, since=None, reason=None, published=None, rate=None, remaining=None)
        listed.append(listing)
    return listed


def list_served_locations(connection: Connection, *, clock: Clock = system_clock) -> list[ReceiveLocation]:
    """Return the locations that a running process serves. A pipeline process has locked its locations, but releases
    the lock of one that fails, so that another process can try. A host serves all its two-way locations."""
    locations = read_receive_locations(connection)
    locked = find_locked_locations(connection, (location.location_id for location in locations))
    reported = read_reported_states(connection)
    failing = {location_id for location_id, (state, _) in reported.items() if state is LocationState.FAILING}
    running = {(process.kind, process.host) for process in list_running_processes(connection)}
    known = read_hosts(connection)
    hosts = {host.host_id for host in known if (ProcessKind.HOST, host.name) in running}
    pipelines = {host.host_id for host in known if (ProcessKind.PIPELINE, host.name) in running}
    now = clock()

    def is_served(location: ReceiveLocation) -> bool:
        if location.is_two_way:
            return location.host_id in hosts and location.receives_at(now)
        is_failing = location.location_id in failing and location.host_id in pipelines
        return is_failing or location.location_id in locked

    return list(filter(is_served, locations))


def create_watched_folders(connection: Connection, home: Path) -> list[str]:
    """Create the watched folders, so that files can be dropped before the locations run.

    Return a description of each folder that cannot be created. It is not an error here: the location itself retries."""
    problems = []
    for location in read_receive_locations(connection):
        try:
            watched = location.watched_folder
        except DefinitionError as error:
            problems.append(f"{error.what} {error.why}")
            continue
        if watched is not None:
            folder = watched.folder(home)
            try:
                make_folder(folder)
            except OSError as error:
                problems.append(f"{location.name}: {folder} cannot be created: {error.strerror or error}")
    return problems


def enable(connection: Connection, name: str) -> None:
    """Let the location receive messages."""
    _set_enabled(connection, name, enabled=True)


def disable(connection: Connection, name: str) -> None:
    """Stop the location from receiving messages. Files that it has claimed are still published."""
    _set_enabled(connection, name, enabled=False)


def set_schedule(connection: Connection, name: str, schedule: Schedule | None) -> None:
    """Set the times when the location receives messages. None means always.

    The next apply of the application restores the schedule that it declares."""
    problems = [] if schedule is None else list(schedule.problems())
    if problems:
        raise DefinitionError(
            "The schedule is invalid.", why=" ".join(problems), hint="See 'postroom location schedule --help'."
        )

    def work(connection: Connection) -> None:
        get_location(connection, name)
        set_location_schedule(connection, name, schedule_to_json(schedule))

    operator_transaction(connection, work)


def reset_stream(connection: Connection, name: str) -> None:
    """Let the stream of rows of a location start from its options, at its next start or its next batch.

    It gets a new checkpoint, so the receipts of rows that were read before do not apply."""

    def work(connection: Connection) -> None:
        if not request_reset(connection, get_location(connection, name).location_id):
            raise StateError(
                f"Receive location {name!r} has no stream that was started.",
                hint="Only a location over a source with offsets, such as Kafka, has one.",
            )
        record_action(connection, "location.reset-stream", name)

    operator_transaction(connection, work)


def get_location(connection: Connection, name: str) -> ReceiveLocation:
    """Return the receive location with this name. Raise NotFound, which suggests names, if there is none."""
    locations = {location.name: location for location in read_receive_locations(connection)}
    return find_named(locations, name, "receive location", none=NONE_APPLIED)


def _set_enabled(connection: Connection, name: str, *, enabled: bool) -> None:
    def work(connection: Connection) -> None:
        if get_location(connection, name).enabled is enabled:
            state = "enabled" if enabled else "disabled"
            raise StateError(f"Receive location {name!r} is already {state}.", hint="There is nothing to do.")
        set_location_enabled(connection, name, enabled=enabled)

    operator_transaction(connection, work)
