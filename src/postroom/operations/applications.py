"""The applications that were applied."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class ApplicationListing:
    """An application and what it consists of."""

    name: str
    receive_ports: int
    locations: int
    send_ports: int
    send_port_groups: int
    applied_at: datetime


def list_applications(connection: Connection) -> list[ApplicationListing]:
    """Every application, by name."""
    with connection.cursor(row_factory=class_row(ApplicationListing)) as cursor:
        return cursor.execute(statement("queries/list_applications")).fetchall()
