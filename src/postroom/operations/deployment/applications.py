"""List the applications that were applied."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from postroom.errors import NotFound, nearest
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class ApplicationListing:
    """An application with the number of its ports, locations, groups and orchestrations."""

    name: str
    receive_ports: int
    locations: int
    send_ports: int
    send_port_groups: int
    orchestrations: int
    """In all versions."""
    applied_at: datetime


def check_application(connection: Connection, name: str | None) -> None:
    """Raise NotFound if there is no application with this name. None is accepted."""
    known = [application.name for application in list_applications(connection)] if name is not None else []
    if name is not None and name not in known:
        raise NotFound(
            f"There is no application {name!r}.",
            hint=nearest(name, known, "The applications are", none="none; run postroom apply first"),
        )


def list_applications(connection: Connection) -> list[ApplicationListing]:
    """Return every application, sorted by name."""
    with connection.cursor(row_factory=class_row(ApplicationListing)) as cursor:
        return cursor.execute(statement("queries/list_applications")).fetchall()
