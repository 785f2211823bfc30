"""Hosts and the processes that run for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from postroom.errors import StateError
from postroom.messagebox.configuration import Host, host_named, hosts
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class HostListing:
    """A host and what belongs to it."""

    name: str
    is_default: bool
    role_name: str
    created_at: datetime
    running_instances: int
    locations: int
    send_ports: int


@dataclass(frozen=True, kw_only=True)
class HostInstanceListing:
    """A process that runs for a host; dead since its lock was seen to be gone."""

    host_instance_id: int
    server: str
    pid: int
    started_at: datetime
    dead_since: datetime | None


def list_hosts(connection: Connection) -> list[HostListing]:
    """Every host, by name."""
    with connection.cursor(row_factory=class_row(HostListing)) as cursor:
        return cursor.execute(statement("queries/list_hosts")).fetchall()


def host_instances(connection: Connection, name: str) -> list[HostInstanceListing]:
    """The processes of one host, the oldest first."""
    host = host_named(connection, name)
    with connection.cursor(row_factory=class_row(HostInstanceListing)) as cursor:
        return cursor.execute(
            "SELECT id AS host_instance_id, server, pid, started_at, dead_since FROM host_instances"
            " WHERE host_id = %s ORDER BY id",
            (host.host_id,),
        ).fetchall()


def publishing_host(connection: Connection, name: str | None) -> Host:
    """The host of that name, or the default one: on whose behalf somebody from outside publishes."""
    if name is not None:
        return host_named(connection, name)
    for host in hosts(connection):
        if host.is_default:
            return host
    raise StateError("The MessageBox has no hosts yet.", hint="Run 'postroom apply APP' first.")
