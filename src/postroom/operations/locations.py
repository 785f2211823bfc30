"""Receive locations: list, enable, disable."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row

from postroom.errors import NotFound, StateError
from postroom.messagebox.configuration import receive_locations
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.statements import statement


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
    route_failures: bool
    """Of its port: are failures published instead of suspended?"""
    waiting: int
    """Files that it has taken and not yet published."""
    oldest: datetime | None
    """When it took the first of them."""
    suspended: int
    problems: Sequence[str]
    """What holds it up."""

    def as_dict(self) -> dict[str, Any]:
        """For a listing."""
        return asdict(self)


def list_locations(connection: Connection) -> list[LocationListing]:
    """Every receive location, by name."""
    with connection.cursor(row_factory=class_row(LocationListing)) as cursor:
        return cursor.execute(statement("queries/list_receive_locations")).fetchall()


def enable(connection: Connection, name: str) -> None:
    """The location takes in messages from now on."""
    _set(connection, name, enabled=True)


def disable(connection: Connection, name: str) -> None:
    """The location takes in nothing more; what it has taken already goes its way."""
    _set(connection, name, enabled=False)


def _set(connection: Connection, name: str, *, enabled: bool) -> None:
    def work(connection: Connection) -> None:
        # Not that routing changes, but the processes that run learn of changes by its version.
        connection.execute("SELECT change_routing()")
        row = connection.execute("SELECT enabled FROM receive_locations WHERE name = %s", (name,)).fetchone()
        if row is None:
            names = ", ".join(location.name for location in receive_locations(connection))
            raise NotFound(
                f"There is no receive location {name!r}.",
                hint=f"The receive locations are: {names or 'none; run postroom apply first'}.",
            )
        if row[0] is enabled:
            state = "enabled" if enabled else "disabled"
            raise StateError(f"Receive location {name!r} is {state} already.", hint="There is nothing to do.")
        connection.execute("UPDATE receive_locations SET enabled = %s WHERE name = %s", (enabled, name))

    transaction(connection, work)
