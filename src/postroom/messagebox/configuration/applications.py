"""Reads and stores applications, and what belongs to an application as a whole."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb

from postroom.errors import LockTimeout
from postroom.messagebox.connection import Connection, read_records, read_value
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


@dataclass(frozen=True, kw_only=True)
class ReceivePort:
    port_id: uuid.UUID
    name: str
    route_failures: bool
    authentication: str


@dataclass(frozen=True, kw_only=True)
class StoredApplication:
    """An application with its definition, as it was applied last."""

    id: uuid.UUID
    name: str
    definition: dict[str, Any]


def list_applications(connection: Connection) -> list[ApplicationListing]:
    """Return every application, sorted by name."""
    return read_records(connection, ApplicationListing, statement("queries/list_applications"))


def read_applications(connection: Connection) -> dict[str, StoredApplication]:
    """Return every application, by name."""
    stored = read_records(connection, StoredApplication, "SELECT id, name, definition FROM applications")
    return {application.name: application for application in stored}


def store_application(connection: Connection, name: str, definition: Mapping[str, Any]) -> uuid.UUID:
    """Store the definition of an application. Return its id."""
    application_id: uuid.UUID = read_value(connection, statement("queries/store_application"), name, Jsonb(definition))
    return application_id


def delete_application(connection: Connection, application_id: uuid.UUID) -> None:
    connection.execute("DELETE FROM applications WHERE id = %s", (application_id,))


def read_receive_ports(connection: Connection, application: str) -> dict[str, ReceivePort]:
    """Return the receive ports of an application, by name."""
    ports = read_records(connection, ReceivePort, statement("queries/read_receive_ports"), (application,))
    return {port.name: port for port in ports}


def store_receive_port(connection: Connection, port: ReceivePort, application_id: uuid.UUID) -> None:
    arguments = (port.port_id, application_id, port.name, port.route_failures, port.authentication)
    connection.execute(statement("queries/store_receive_port"), arguments)


def delete_receive_port(connection: Connection, name: str) -> None:
    connection.execute("DELETE FROM receive_ports WHERE name = %s", (name,))


def read_send_port_names(connection: Connection, application: str) -> set[str]:
    """Return the names of the send ports of an application."""
    return {name for (name,) in connection.execute(statement("queries/list_send_port_names"), (application,))}


def delete_send_port(connection: Connection, port_id: uuid.UUID) -> None:
    """Delete a send port without a subscription. Its postponed messages are due, so that its host finds out."""
    connection.execute("DELETE FROM send_ports WHERE id = %s", (port_id,))
    release_postponed(connection, port_id)


def release_postponed(connection: Connection, port_id: uuid.UUID) -> None:
    """Let the postponed messages of a send port be due, so that its host decides again when it sends them."""
    connection.execute("SELECT release_postponed(%s)", (port_id,))


def delete_receive_location(connection: Connection, location_id: uuid.UUID) -> None:
    """Delete a receive location that has no unfinished files."""
    connection.execute("DELETE FROM receive_locations WHERE id = %s", (location_id,))


def lock_receive_location(connection: Connection, location_id: uuid.UUID) -> bool:
    """Lock a location against new files until the transaction ends. Return False if it is claiming files now."""
    try:
        with connection.transaction():
            connection.execute("SELECT FROM services WHERE id = %s FOR UPDATE NOWAIT", (location_id,))
    except LockTimeout:
        return False
    return True


def count_unfinished_files(connection: Connection) -> dict[uuid.UUID, int]:
    """Return the number of files and interchanges of each receive location that are not finished."""
    return dict(connection.execute(statement("queries/unfinished_files")).fetchall())


def rename_services(
    connection: Connection, kind: Literal["send port", "location"], names: Mapping[str, uuid.UUID]
) -> None:
    """Give send ports or receive locations new names. They get a temporary name first, because two of them may swap
    their names."""
    table = "send_ports" if kind == "send port" else "receive_locations"
    for id in names.values():
        connection.execute(f"UPDATE {table} SET name = id::text WHERE id = %s", (id,))
    for name, id in names.items():
        connection.execute(f"UPDATE {table} SET name = %s WHERE id = %s", (name, id))
        connection.execute("SELECT rename_service(%s, %s)", (id, name))


def lock_deployment(connection: Connection) -> None:
    """Lock the routing exclusively until the transaction ends, without a new version: deployments are serialised, and
    no port changes its state meanwhile."""
    connection.execute("SELECT pg_advisory_xact_lock(7001, 0)")


def can_create_hosts(connection: Connection) -> bool:
    """Return True if the login may create hosts."""
    return bool(read_value(connection, "SELECT has_table_privilege('messagebox.hosts', 'INSERT')"))
