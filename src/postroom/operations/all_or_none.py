"""Apply the same change to several named objects in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.notifications import defer_wake_ups

Name = TypeVar("Name")
Result = TypeVar("Result")


def all_or_none(
    connection: Connection, names: Sequence[Name], change: Callable[[Connection, Name], Result]
) -> list[Result]:
    """Apply ``change`` to each name in one transaction and return the results in order.

    An error rolls all of them back. Duplicate names are changed once. Hosts are woken after the commit.

    >>> all_or_none(connection, ["Europe", "Audit"], send_ports.stop)
    """
    distinct = list(dict.fromkeys(names))
    try:
        with defer_wake_ups(connection):
            return operator_transaction(connection, lambda connection: [change(connection, name) for name in distinct])
    except PostroomError as error:
        if len(distinct) > 1:
            error.hint = f"{error.hint} The others were not changed.".strip()
        raise
