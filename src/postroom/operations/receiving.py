"""Receive locations while they are served: their folders, and when files are taken in."""

from __future__ import annotations

from pathlib import Path

from postroom.adapters.file.folder import make_folder
from postroom.errors import DefinitionError
from postroom.messagebox.configuration import ReceiveLocation, receive_locations
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.streams.running_locations import LocationState
from postroom.spark.intake.location_lock import LOCATION_LOCK, lock_number


def served_locations(connection: Connection) -> list[ReceiveLocation]:
    """Those for which a process takes in files now: it holds the location's lock."""
    held = {lock for (lock,) in connection.execute(statement("queries/held_locks"), (LOCATION_LOCK,))}
    return [one for one in receive_locations(connection) if lock_number(one.location_id) % (1 << 32) in held]


def told_of_locations(connection: Connection) -> dict[str, tuple[LocationState, str]]:
    """What the processes that serve locations say of them, by name, with words for people; nothing of one that only
    starts."""
    said = connection.execute("SELECT location_id, state, reason FROM management.running_locations")
    known = {location_id: (LocationState(state), reason) for location_id, state, reason in said}
    told: dict[str, tuple[LocationState, str]] = {}
    for location in served_locations(connection):
        state, reason = known.get(location.location_id, (LocationState.STARTING, None))
        if state is LocationState.RECEIVING:
            told[location.name] = state, f"receiving {location.uri}"
        elif state is not LocationState.STARTING:
            told[location.name] = state, reason or state.value
    return told


def make_watched_folders(connection: Connection, home: Path) -> list[str]:
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
