"""Read the current deployment, to compare an application with it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from postroom.application import ApplicationDefinition
from postroom.messagebox.configuration.applications import read_applications
from postroom.messagebox.configuration.endpoints import ReceivePort, read_receive_ports, read_send_port_names
from postroom.messagebox.configuration.hosts import Host, can_create_hosts, read_hosts
from postroom.messagebox.configuration.properties import read_property_types, read_sensitive_keys
from postroom.messagebox.configuration.send_port_groups import SendPortGroup, read_send_port_groups
from postroom.messagebox.configuration.services import read_removed_services
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceState, count_backlog
from postroom.messagebox.orchestrations import (
    DeployedOrchestration,
    count_orchestration_instances,
    read_orchestrations,
)
from postroom.messagebox.streams.location_progress import count_unfinished_files
from postroom.operations.deployment.plan import ChangeKind
from postroom.operations.deployment.renames import NO_RENAMES, Renames, find_location_renames, find_port_renames
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.ports.send_ports import SendPort, read_send_ports
from postroom.values import ValueType

#: The artifacts in the definition of an application. Their order has no meaning.
_ARTIFACTS = ("receive_ports", "locations", "send_ports", "send_port_groups", "orchestrations")


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """The current deployment. Ports, groups and locations are those of one application."""

    hosts: dict[str, Host]
    """By name in lower case, because names of hosts are not case-sensitive."""
    properties: dict[str, ValueType]
    sensitive: frozenset[str]
    """The keys of sensitive properties."""
    definition: dict[str, Any] | None
    """The stored definition of the application, with its artifacts sorted. None if it was never applied."""
    others: tuple[ApplicationDefinition, ...]
    receive_ports: dict[str, ReceivePort]
    locations: dict[str, ReceiveLocation]
    send_ports: dict[str, SendPort]
    send_port_groups: dict[str, SendPortGroup]
    orchestrations: dict[tuple[str, int], DeployedOrchestration]
    """By name and version."""
    orchestration_instances: dict[uuid.UUID, int]
    """The number of instances of each orchestration, by its id."""
    unfinished_files: dict[uuid.UUID, int]
    """The number of received but unpublished files by the id of the location."""
    can_create_hosts: bool
    """True if the login may create hosts. Only the owner of the MessageBox may."""
    port_renames: Renames = NO_RENAMES
    location_renames: Renames = NO_RENAMES
    """Renames that are still to be done. Ports, locations and members have their new names here."""
    backlog: Mapping[uuid.UUID, Mapping[InstanceState, int]] = field(default_factory=dict)
    """The instances of ports and locations that are no longer declared, or that are declared again, by id."""
    removed: Mapping[tuple[str, str], uuid.UUID] = field(default_factory=dict)
    """The ids of removed ports and locations of the application, by kind and name."""
    orphans: Mapping[uuid.UUID, Mapping[InstanceState, int]] = field(default_factory=dict)
    """The instances of ports and locations that were removed before and are not declared again, by id."""

    def find_removed(self, kind: ChangeKind, name: str) -> uuid.UUID | None:
        """Return the id that a new port or location takes over: of the same name, or of the name that it is renamed
        from."""
        return self.removed.get((kind, self.get_removed_name(kind, name)))

    def get_removed_name(self, kind: ChangeKind, name: str) -> str:
        """Return the name of the removed port or location that a new one takes over."""
        renames = self.port_renames if kind is ChangeKind.SEND_PORT else self.location_renames
        return renames.removed_names.get(name, name)

    def host_name(self, host_id: int) -> str:
        return next(host.name for host in self.hosts.values() if host.host_id == host_id)


def create_empty_deployment() -> Deployed:
    """Return the deployment of a MessageBox that does not exist yet."""
    return Deployed(
        hosts={},
        properties={},
        sensitive=frozenset(),
        definition=None,
        others=(),
        receive_ports={},
        locations={},
        send_ports={},
        send_port_groups={},
        orchestrations={},
        orchestration_instances={},
        unfinished_files={},
        can_create_hosts=True,
    )


def read_deployed(connection: Connection, application: str) -> Deployed:
    """Read the deployment for an application of this name.

    The caller's transaction must guarantee a consistent snapshot."""
    applications = read_applications(connection)
    stored = applications.pop(application, None)
    own = read_receive_ports(connection, application)
    own_send_ports = read_send_port_names(connection, application)
    return Deployed(
        hosts={host.name.lower(): host for host in read_hosts(connection)},
        properties=read_property_types(connection),
        sensitive=read_sensitive_keys(connection),
        definition=None if stored is None else sort_artifacts(stored.definition),
        others=tuple(ApplicationDefinition.from_stored(other.definition) for other in applications.values()),
        receive_ports=own,
        locations={
            location.name: location for location in read_receive_locations(connection) if location.port_name in own
        },
        send_ports={port.name: port for port in read_send_ports(connection) if port.name in own_send_ports},
        send_port_groups={
            group.name: group for group in read_send_port_groups(connection) if group.application == application
        },
        orchestrations={
            (one.name, one.version): one
            for one in read_orchestrations(connection)
            if stored is not None and one.application_id == stored.id
        },
        orchestration_instances=count_orchestration_instances(connection, application),
        unfinished_files=count_unfinished_files(connection),
        can_create_hosts=can_create_hosts(connection),
        removed={
            (service.kind, service.name): service.id
            for service in read_removed_services(connection)
            if service.application == application
        },
    )


def sort_artifacts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored definition of an application, or of a receive port, with its artifacts by name and version."""
    return {
        field: value
        if field not in _ARTIFACTS
        else sorted(map(sort_artifacts, value), key=lambda each: (each["name"], each.get("version")))
        for field, value in stored.items()
    }


def read_deployed_for(connection: Connection, definition: ApplicationDefinition) -> Deployed:
    """Read the deployment that ``definition`` is compared with: objects that it renames have their new names, and the
    backlog of what it removes is counted. The caller's transaction must guarantee a consistent snapshot."""
    deployed = rename_objects(read_deployed(connection, definition.name), definition)
    services = find_removed_services(definition, deployed) + _find_restored_services(definition, deployed)
    return replace(deployed, backlog=count_backlog(connection, services))


def rename_objects(deployed: Deployed, definition: ApplicationDefinition) -> Deployed:
    """Return the deployment with the new names of ports and locations that ``definition`` renames."""
    removed_ports, removed_locations = (
        [name for removed, name in deployed.removed if removed == kind]
        for kind in (ChangeKind.SEND_PORT, ChangeKind.LOCATION)
    )
    ports = find_port_renames(definition, deployed.definition, deployed.send_ports, removed_ports)
    locations = find_location_renames(definition, deployed.definition, deployed.locations, removed_locations)
    send_ports = ports.apply(deployed.send_ports)
    names = {port.port_id: port.name for port in send_ports.values()}
    return replace(
        deployed,
        send_ports=send_ports,
        locations=locations.apply(deployed.locations),
        send_port_groups={
            name: replace(
                group,
                members=tuple(
                    replace(member, port_name=names.get(member.port_id, member.port_name)) for member in group.members
                ),
            )
            for name, group in deployed.send_port_groups.items()
        },
        port_renames=ports,
        location_renames=locations,
    )


def find_removed_services(definition: ApplicationDefinition, deployed: Deployed) -> list[uuid.UUID]:
    """Return the ids of the send ports and receive locations that are no longer declared."""
    ports = {port.name for port in definition.send_ports}
    locations = {location.name for port in definition.receive_ports for location in port.locations}
    return [
        *(port.port_id for name, port in deployed.send_ports.items() if name not in ports),
        *(location.location_id for name, location in deployed.locations.items() if name not in locations),
    ]


def _find_restored_services(definition: ApplicationDefinition, deployed: Deployed) -> list[uuid.UUID]:
    """Return the ids of the send ports and receive locations that were removed and are declared again, under the same
    name or another one."""
    ports = {port.name for port in definition.send_ports} - deployed.send_ports.keys()
    locations = {location.name for port in definition.receive_ports for location in port.locations}
    again = [
        *((ChangeKind.SEND_PORT, name) for name in ports),
        *((ChangeKind.LOCATION, name) for name in locations - deployed.locations.keys()),
    ]
    found = (deployed.find_removed(kind, name) for kind, name in again)
    return [service_id for service_id in found if service_id is not None]


def count_orphans(connection: Connection, definition: ApplicationDefinition, deployed: Deployed) -> Deployed:
    """Return the deployment with the instances of ports and locations that stay removed. Reads the queues whole."""
    orphaned = set(deployed.removed.values()) - set(_find_restored_services(definition, deployed))
    return replace(deployed, orphans=count_backlog(connection, orphaned))
