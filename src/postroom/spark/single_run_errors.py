"""The errors of `postroom pipeline run --once`."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import PostroomError, StateError, Unavailable
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake.numbered_interchanges import read_quarantined
from postroom.ports.receive_locations import ReceiveLocation

#: Maximum number of quarantined files that an error names.
_MAX_NAMES = 5


def stopped_early_error() -> PostroomError:
    """Return the error for a run that was stopped early."""
    return Unavailable(
        "The run was stopped before it was finished.",
        hint="Run it again. It continues where it stopped, and nothing is published twice.",
    )


def served_by_other_error(name: str) -> StateError:
    """Return the error for a receive location or sink that another process serves."""
    return StateError(
        f"{name} is served by another process.",
        why="Only one process at a time can serve it.",
        hint="See postroom pipeline show. Stop the other process, or let it do the work.",
    )


def find_quarantined(connection: Connection, location: ReceiveLocation) -> StateError | None:
    """Return the error if a location has quarantined files or rows of the inbox."""
    left = read_quarantined(connection, location.location_id)
    if not left:
        return None
    names = ", ".join(file for file, _ in left[:_MAX_NAMES]) + (", …" if len(left) > _MAX_NAMES else "")
    return StateError(
        f"{location.name}: {len(left)} quarantined: {names}.",
        why=f"{left[0][0]} {left[0][1]}",
        hint="See postroom location list. The next run tries them again.",
    )


def combine_errors(problems: Sequence[PostroomError]) -> PostroomError:
    """Return one error for all. Its type is that of the first."""
    first = problems[0]
    if len(problems) == 1:
        return first
    why = " ".join(f"{problem.what} {problem.why}".strip() for problem in problems[1:])
    return type(first)(
        f"{len(problems)} problems occurred. {first.what}", why=f"{first.why} {why}".strip(), hint=first.hint
    )
