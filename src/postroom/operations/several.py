"""The same done to several things that a user named: to all of them, or to none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection, transaction

Name = TypeVar("Name")
Done = TypeVar("Done")


def all_or_none(
    connection: Connection, names: Sequence[Name], change: Callable[[Connection, Name], Done]
) -> list[Done]:
    """What each came to, in their order; whatever is raised for one undoes the others. A name given twice counts once.

    >>> all_or_none(connection, ["Europe", "Audit"], ports.stop)
    """
    wanted = list(dict.fromkeys(names))
    try:
        return transaction(connection, lambda connection: [change(connection, name) for name in wanted])
    except PostroomError as error:
        if len(wanted) > 1:
            error.hint = f"{error.hint} Nothing was done to the others.".strip()
        raise
