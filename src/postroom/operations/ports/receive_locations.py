"""Receive locations: list, enable, disable, schedule."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from psycopg.rows import dict_row

from postroom.adapters.file.folder import make_folder
from postroom.application import Schedule
from postroom.clock import Clock, system_clock
from postroom.errors import DefinitionError, NotFound, StateError, nearest
from postroom.messagebox.configuration import ReceiveLocation, read_schedule, receive_locations, stored_schedule
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.statements import statement
from postroom.messagebox.streams.running_locations import LocationState
from postroom.spark.intake.location_lock import LOCATION_LOCK, lock_number


@dataclass(frozen=True, kw_only=True)
class LocationListing:
    """A receive location, and how it is getting on."""

    location: str
    location_id: uuid.UUID
    port: str
    application: str
    host: str
    adapter: str
    pipeline: str
    uri: str
    enabled: bool
    schedule: Schedule | None
    """When it takes in messages; None: always."""
    route_failures: bool
    """Of its port: are failures published instead of suspended?"""
    waiting: int
    """Files that it has taken, and interchanges that were handed over to it, that are not published yet."""
    oldest: datetime | None
    """When it took the first of them."""
    suspended: int
    problems: Sequence[str]
    """What holds it up."""
    state: str
    """disabled; outside its schedule; not running (no process serves it); starting, receiving, throttled or failing."""
    since: datetime | None
    """When that began, if a process serves it."""
    reason: str | None
    """Why it is throttled or failing."""
    published: int
    """Messages, since it was started last."""
    rate: float
    """Messages a second, in the last ten seconds."""
    remaining: int | None
    """What is known to be left of what is being read."""
    remaining_unit: str | None
    last_batch_at: datetime | None

    def as_dict(self) -> dict[str, Any]:
        """For a listing."""
        return {**asdict(self), "schedule": None if self.schedule is None else str(self.schedule)}

    def opens_at(self, now: datetime) -> datetime | None:
        """When it takes in messages again, if it is outside its schedule; None if it is inside, or never will be."""
        return None if self.schedule is None or self.schedule.is_open(now) else self.schedule.next_opening(now)


def list_locations(connection: Connection, *, clock: Clock = system_clock) -> list[LocationListing]:
    """Every receive location, by name."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("queries/list_receive_locations")).fetchall()
    listed = [LocationListing(**{**row, "schedule": read_schedule(row["schedule"])}) for row in rows]
    served = {location.location_id for location in list_served_locations(connection)}
    return [one if one.location_id in served else _not_served(one, clock()) for one in listed]


def _not_served(listing: LocationListing, now: datetime) -> LocationListing:
    """What a process that is gone said last is not true any more."""
    state = "not running" if listing.enabled else "disabled"
    if listing.enabled and listing.schedule is not None and not listing.schedule.is_open(now):
        state = "outside its schedule"
    return replace(listing, state=state, since=None, reason=None, published=0, rate=0.0, remaining=None)


def list_served_locations(connection: Connection) -> list[ReceiveLocation]:
    """Those for which a process takes in files now: it holds the location's lock."""
    held = {lock for (lock,) in connection.execute(statement("queries/held_locks"), (LOCATION_LOCK,))}
    return [one for one in receive_locations(connection) if lock_number(one.location_id) % (1 << 32) in held]


def describe_running_locations(connection: Connection) -> dict[str, tuple[LocationState, str]]:
    """What the processes that serve locations say of them, by name, with words for people; nothing of one that only
    starts."""
    said = connection.execute("SELECT location_id, state, reason FROM management.running_locations")
    known = {location_id: (LocationState(state), reason) for location_id, state, reason in said}
    told: dict[str, tuple[LocationState, str]] = {}
    for location in list_served_locations(connection):
        state, reason = known.get(location.location_id, (LocationState.STARTING, None))
        if state is LocationState.RECEIVING:
            told[location.name] = state, f"receiving {location.uri}"
        elif state is not LocationState.STARTING:
            told[location.name] = state, reason or state.value
    return told


def create_watched_folders(connection: Connection, home: Path) -> list[str]:
    """The folders that locations watch, so that files can be dropped before anybody looks.

    Returns what cannot be made, in words: that is a matter of its location, which goes on trying."""
    problems = []
    for location in receive_locations(connection):
        try:
            watched = location.adapter.watched_folder
        except DefinitionError as error:
            problems.append(f"{error.what} {error.why}")
            continue
        if watched is not None:
            folder = watched.folder(home)
            try:
                make_folder(folder)
            except OSError as error:
                problems.append(f"{location.name}: {folder} cannot be made: {error.strerror or error}")
    return problems


def enable(connection: Connection, name: str) -> None:
    """The location takes in messages from now on."""
    _set(connection, name, enabled=True)


def disable(connection: Connection, name: str) -> None:
    """The location takes in nothing more; what it has taken already goes its way."""
    _set(connection, name, enabled=False)


def schedule(connection: Connection, name: str, when: Schedule | None) -> None:
    """The location takes in messages at these times only, or (None) always. A schedule that its application declares
    comes back when that is applied again."""
    problems = [] if when is None else list(when.problems())
    if problems:
        raise DefinitionError(
            "This cannot be a schedule.", why=" ".join(problems), hint="See postroom location --help."
        )

    def work(connection: Connection) -> None:
        connection.execute("SELECT change_routing()")
        _enabled(connection, name)
        connection.execute("UPDATE receive_locations SET schedule = %s WHERE name = %s", (stored_schedule(when), name))

    transaction(connection, work)


def reset_stream(connection: Connection, name: str) -> None:
    """Let the stream of rows of a location start from its options, at its next start or its next batch.

    It gets a new checkpoint, so the receipts of rows that were read before do not apply."""

    def work(connection: Connection) -> None:
        _enabled(connection, name)
        requested = connection.execute(statement("queries/request_stream_restart"), (name,))
        if not requested.rowcount:
            raise StateError(
                f"Receive location {name!r} has no stream that was started.",
                hint="Only a location over a source with offsets, such as Kafka, has one.",
            )

    transaction(connection, work)


def scheduled(connection: Connection, name: str) -> Schedule | None:
    """When a location takes in messages; None: always."""
    _enabled(connection, name)
    row = connection.execute("SELECT schedule FROM receive_locations WHERE name = %s", (name,)).fetchone()
    return None if row is None else read_schedule(row[0])


def _enabled(connection: Connection, name: str) -> bool:
    row = connection.execute("SELECT enabled FROM receive_locations WHERE name = %s", (name,)).fetchone()
    if row is None:
        names = (location.name for location in receive_locations(connection))
        raise NotFound(
            f"There is no receive location {name!r}.",
            hint=nearest(name, names, "The receive locations are", none="none; run postroom apply first"),
        )
    return bool(row[0])


def _set(connection: Connection, name: str, *, enabled: bool) -> None:
    def work(connection: Connection) -> None:
        # Not that routing changes, but the processes that run learn of changes by its version.
        connection.execute("SELECT change_routing()")
        if _enabled(connection, name) is enabled:
            state = "enabled" if enabled else "disabled"
            raise StateError(f"Receive location {name!r} is {state} already.", hint="There is nothing to do.")
        connection.execute("UPDATE receive_locations SET enabled = %s WHERE name = %s", (enabled, name))

    transaction(connection, work)
