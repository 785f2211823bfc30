"""List hosts and host instances."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row, dict_row

from postroom.adapters.url_logins import HIDDEN
from postroom.errors import StateError
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES, ApplicationProperties
from postroom.messagebox.configuration import Host, find_host, read_application_properties, read_hosts
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.operations.redaction import read_sensitive_keys
from postroom.properties import dotted_name, split_key


@dataclass(frozen=True, kw_only=True)
class HostProperty:
    """An application property of a host. The value is the text that predicates of messages are compared with."""

    property: str
    value: str

    def __str__(self) -> str:
        return f"{self.property} = {self.value!r}"


@dataclass(frozen=True, kw_only=True)
class HostListing:
    """A host with the number of its instances, locations and send ports."""

    name: str
    is_default: bool
    trusted: bool
    """Is the host trusted to name the originator of a message?"""
    role_name: str
    created_at: datetime
    running_instances: int
    locations: int
    send_ports: int
    properties: tuple[HostProperty, ...] = ()
    """The application properties of the host. Values of sensitive properties are hidden."""


@dataclass(frozen=True, kw_only=True)
class HostInstanceListing:
    """A host instance. ``dead_since`` is the time when another process found its lock released."""

    host_instance_id: int
    server: str
    pid: int
    started_at: datetime
    dead_since: datetime | None


def list_hosts(connection: Connection) -> list[HostListing]:
    """Return every host, sorted by name."""
    shown = read_application_properties(connection)
    hidden = read_sensitive_keys(connection)
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("queries/list_hosts")).fetchall()
    return [
        HostListing(**row, properties=tuple(_list_properties(shown.get(host_id, NO_APPLICATION_PROPERTIES), hidden)))
        for row in rows
        for host_id in (row.pop("host_id"),)
    ]


def _list_properties(shown: ApplicationProperties, hidden: Collection[str]) -> Iterator[HostProperty]:
    for key, text in sorted(shown):
        yield HostProperty(property=dotted_name(*split_key(key)), value=HIDDEN if key in hidden else text)


def list_host_instances(connection: Connection, name: str) -> list[HostInstanceListing]:
    """Return the instances of one host, the oldest first."""
    host = find_host(connection, name)
    with connection.cursor(row_factory=class_row(HostInstanceListing)) as cursor:
        return cursor.execute(
            "SELECT id AS host_instance_id, server, pid, started_at, dead_since FROM host_instances"
            " WHERE host_id = %s AND kind = 'host' ORDER BY id",
            (host.host_id,),
        ).fetchall()


def get_publishing_host(connection: Connection, name: str | None) -> Host:
    """Return the host with this name, or the default host. A client publishes on behalf of this host."""
    if name is not None:
        return find_host(connection, name)
    for host in read_hosts(connection):
        if host.is_default:
            return host
    raise StateError("The MessageBox has no hosts yet.", hint="Run 'postroom apply APP' first.")
