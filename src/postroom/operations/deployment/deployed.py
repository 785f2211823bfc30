"""Read the current deployment, to compare an application with it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from postroom.application import ApplicationDefinition
from postroom.filters.authorisation import ApplicationProperties
from postroom.messagebox.configuration import (
    Host,
    ReceiveLocation,
    SendPort,
    SendPortGroup,
    read_application_properties,
    read_hosts,
    read_receive_locations,
    read_send_port_groups,
    read_send_ports,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.operations.redaction import read_sensitive_keys
from postroom.values import ValueType


@dataclass(frozen=True, kw_only=True)
class ReceivePort:
    port_id: uuid.UUID
    name: str
    route_failures: bool
    authentication: str


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """The current deployment. Ports, groups and locations are those of one application."""

    hosts: dict[str, Host]
    """By name in lower case, because names of hosts are not case-sensitive."""
    application_properties: dict[int, ApplicationProperties]
    """By host id."""
    properties: dict[str, ValueType]
    sensitive: frozenset[str]
    """The keys of sensitive properties."""
    definition: dict[str, Any] | None
    """The stored definition of the application. None if it was never applied."""
    others: tuple[ApplicationDefinition, ...]
    receive_ports: dict[str, ReceivePort]
    locations: dict[str, ReceiveLocation]
    send_ports: dict[str, SendPort]
    send_port_groups: dict[str, SendPortGroup]
    unfinished_files: dict[str, int]
    """The number of received but unpublished files by location."""

    def host_name(self, host_id: int) -> str:
        return next(host.name for host in self.hosts.values() if host.host_id == host_id)


def create_empty_deployment() -> Deployed:
    """Return the deployment of a MessageBox that does not exist yet."""
    return Deployed(
        hosts={},
        application_properties={},
        properties={},
        sensitive=frozenset(),
        definition=None,
        others=(),
        receive_ports={},
        locations={},
        send_ports={},
        send_port_groups={},
        unfinished_files={},
    )


def read_deployed(connection: Connection, application: str) -> Deployed:
    """Read the deployment for an application of this name.

    The caller's transaction must guarantee a consistent snapshot."""
    definitions: dict[str, dict[str, Any]] = dict(
        connection.execute("SELECT name, definition FROM applications").fetchall()
    )
    own = {
        name: ReceivePort(port_id=port_id, name=name, route_failures=route_failures, authentication=authentication)
        for name, port_id, route_failures, authentication in connection.execute(
            statement("queries/read_receive_ports"), (application,)
        )
    }
    own_send_ports = {name for (name,) in connection.execute(statement("queries/list_send_port_names"), (application,))}
    return Deployed(
        hosts={host.name.lower(): host for host in read_hosts(connection)},
        application_properties=read_application_properties(connection),
        properties={
            key: ValueType(value_type)
            for key, value_type in connection.execute("SELECT key, value_type FROM properties")
        },
        sensitive=read_sensitive_keys(connection),
        definition=definitions.get(application),
        others=tuple(
            ApplicationDefinition.from_stored(stored) for name, stored in definitions.items() if name != application
        ),
        receive_ports=own,
        locations={
            location.name: location for location in read_receive_locations(connection) if location.port_name in own
        },
        send_ports={port.name: port for port in read_send_ports(connection) if port.name in own_send_ports},
        send_port_groups={
            group.name: group for group in read_send_port_groups(connection) if group.application == application
        },
        unfinished_files=dict(connection.execute(statement("queries/unfinished_files")).fetchall()),
    )
