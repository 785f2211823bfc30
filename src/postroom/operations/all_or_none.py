"""The same change to several things that a user named: to all of them, or to none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from postroom.agent.wake_up import hold_wake_ups
from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection, transaction

Name = TypeVar("Name")
Result = TypeVar("Result")


def all_or_none(
    connection: Connection, names: Sequence[Name], change: Callable[[Connection, Name], Result]
) -> list[Result]:
    """Applies ``change`` to each name in one transaction and returns the results in order. An error undoes all of them,
    and a name that is given twice counts once. Hosts are woken after the commit.

    >>> all_or_none(connection, ["Europe", "Audit"], send_ports.stop)
    """
    distinct = list(dict.fromkeys(names))
    try:
        with hold_wake_ups(connection):
            return transaction(connection, lambda connection: [change(connection, name) for name in distinct])
    except PostroomError as error:
        if len(distinct) > 1:
            error.hint = f"{error.hint} Nothing was done to the others.".strip()
        raise
