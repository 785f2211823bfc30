"""Reads and stores applications."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection, read_records, read_value
from postroom.messagebox.statements import statement

ArtifactTable = Literal[
    "receive_ports", "receive_locations", "send_ports", "send_port_groups", "orchestrations", "lookups"
]


@dataclass(frozen=True, kw_only=True)
class ApplicationListing:
    """An application with the number of its ports, locations, groups, orchestrations and lookups."""

    name: str
    receive_ports: int
    locations: int
    send_ports: int
    send_port_groups: int
    orchestrations: int
    """In all versions."""
    lookups: int
    applied_at: datetime


@dataclass(frozen=True, kw_only=True)
class StoredApplication:
    """An application with its definition, as it was applied last. Its artifacts have no order."""

    id: uuid.UUID
    name: str
    definition: dict[str, Any]


def list_applications(connection: Connection) -> list[ApplicationListing]:
    """Return every application, sorted by name."""
    return read_records(connection, ApplicationListing, statement("queries/list_applications"))


def read_applications(connection: Connection) -> dict[str, StoredApplication]:
    """Return every application, by name."""
    stored = read_records(connection, StoredApplication, statement("queries/read_applications"))
    return {application.name: application for application in stored}


def store_application(
    connection: Connection, name: str, *, properties: Sequence[Mapping[str, Any]], hosts: Sequence[Mapping[str, Any]]
) -> uuid.UUID:
    """Store what an application says about properties and hosts. Return its id."""
    arguments = (name, Jsonb(properties), Jsonb(hosts))
    application_id: uuid.UUID = read_value(connection, statement("queries/store_application"), *arguments)
    return application_id


def store_definition(connection: Connection, table: ArtifactTable, definition: Mapping[str, Any]) -> None:
    """Store another definition of a deployed artifact, without any other change."""
    connection.execute(
        f"UPDATE {table} SET definition = %(definition)s"
        " WHERE name = %(name)s AND definition -> 'version' IS NOT DISTINCT FROM %(definition)s -> 'version'",
        {"name": definition["name"], "definition": Jsonb(definition)},
    )


def delete_application(connection: Connection, application_id: uuid.UUID) -> None:
    connection.execute("DELETE FROM applications WHERE id = %s", (application_id,))
