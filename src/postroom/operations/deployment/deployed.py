"""Read the current deployment, to compare an application with it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from postroom.application import ApplicationDefinition
from postroom.errors import format_count
from postroom.messagebox.bindings import read_binding_targets
from postroom.messagebox.configuration.applications import StoredApplication, read_applications
from postroom.messagebox.configuration.hosts import can_create_hosts, read_host_instances, read_hosts
from postroom.messagebox.configuration.properties import read_property_types, read_sensitive_keys
from postroom.messagebox.configuration.services import read_removed_services
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery, count_backlog, count_states
from postroom.messagebox.intake.location_progress import count_unfinished_files
from postroom.messagebox.orchestrations import count_orchestration_instances, read_instance_hosts
from postroom.operations.deployment.artifacts import ArtifactKind, Deployed
from postroom.operations.deployment.endpoints import LOCATIONS, RECEIVE_PORTS, SEND_PORTS
from postroom.operations.deployment.hosts import resolve_host
from postroom.operations.deployment.lookups import LOOKUPS
from postroom.operations.deployment.orchestrations import ORCHESTRATIONS, find_new_orchestration_names
from postroom.operations.deployment.plan import ChangeKind
from postroom.operations.deployment.renames import Renames, find_renames
from postroom.operations.deployment.send_port_groups import SEND_PORT_GROUPS
from postroom.operations.orchestrations.bindings import read_bound_names

#: The kinds of artifacts, in the order in which they are compared and stored. They are removed in the reverse order.
KINDS: tuple[ArtifactKind[Any, Any], ...] = (
    RECEIVE_PORTS,
    LOCATIONS,
    SEND_PORTS,
    SEND_PORT_GROUPS,
    ORCHESTRATIONS,
    LOOKUPS,
)

#: The kinds whose instances stay when an artifact is removed.
KINDS_WITH_INSTANCES = tuple(kind for kind in KINDS if kind.keeps_instances)
#: The kinds that can be renamed.
KINDS_WITH_NAMES = tuple(kind for kind in KINDS if kind.moves_with_name)


def read_deployed_for(connection: Connection, definition: ApplicationDefinition) -> Deployed:
    """Read the deployment that ``definition`` is compared with: objects that it renames have their new names, and the
    backlog of what it removes is counted. The caller's transaction must guarantee a consistent snapshot."""
    deployed = _rename_artifacts(_read_deployed(connection, definition.name), definition)
    restored = list(_find_restored_services(definition, deployed))
    services = [*_find_removed_services(definition, deployed), *restored]
    return replace(
        deployed,
        backlog=count_backlog(connection, services),
        busy_hosts=_find_busy_hosts(connection, definition, deployed),
        kept_on=read_instance_hosts(connection, restored),
    )


def _find_busy_hosts(connection: Connection, definition: ApplicationDefinition, deployed: Deployed) -> dict[str, str]:
    """Return the messages and processes of hosts that become isolated or in-process. Their messages have the service
    class of one type, and a host of the other type does not dequeue them."""
    busy = {}
    for declared in definition.hosts:
        host = deployed.hosts.get(declared.name.lower())
        if host is None or bool(resolve_host(definition, deployed, host.name).isolated) == host.isolated:
            continue
        messages = sum(count_states(connection, InstanceQuery(host=host.name)).values())
        running = len(read_host_instances(connection).get(host.host_id, ()))
        if messages or running:
            counts = format_count(messages, "message"), format_count(running, "host instance")
            busy[host.name.lower()] = " and ".join(counts)
    return busy


def _read_deployed(connection: Connection, application: str) -> Deployed:
    applications = read_applications(connection)
    stored = applications.pop(application, None)
    targets = read_binding_targets(connection)
    return Deployed(
        hosts={host.name.lower(): host for host in read_hosts(connection)},
        properties=read_property_types(connection),
        sensitive=read_sensitive_keys(connection),
        definition=None if stored is None else stored.definition,
        others=tuple(ApplicationDefinition.from_stored(other.definition) for other in applications.values()),
        artifacts={} if stored is None else {kind.kind: _read_artifacts(connection, kind, stored) for kind in KINDS},
        orchestration_instances=count_orchestration_instances(connection, application),
        unfinished_files=count_unfinished_files(connection),
        can_create_hosts=can_create_hosts(connection),
        bindings=read_bound_names(connection, targets),
        port_states={target.name: target.state for target in targets.values()},
        removed={
            (service.kind, service.display_name): service.id
            for service in read_removed_services(connection)
            if service.application == application
        },
    )


def _read_artifacts(
    connection: Connection, kind: ArtifactKind[Any, Any], application: StoredApplication
) -> dict[str, Any]:
    found = kind.read(connection, application)
    ordered = sorted(found, key=lambda known: (known.name, getattr(known, "version", None)))
    return {kind.get_name(known): known for known in ordered}


def _rename_artifacts(deployed: Deployed, definition: ApplicationDefinition) -> Deployed:
    """Return the deployment with the new names of what ``definition`` renames."""
    renames: dict[ChangeKind, Renames] = {}
    artifacts: dict[ChangeKind, dict[str, Any]] = {}
    for kind in KINDS_WITH_NAMES:
        declared = kind.get_declared(definition)
        found = renames[kind.kind] = find_renames(
            declared,
            {name: old for name, each in declared.items() if (old := kind.get_old_name(each)) is not None},
            deployed.get(kind),
            [name for removed, name in deployed.removed if removed == kind.kind],
        )
        new_names = {old: new for new, old in found.old_names.items()}
        artifacts[kind.kind] = {
            new_names.get(name, name): kind.rename(known, declared[new_names[name]]) if name in new_names else known
            for name, known in deployed.get(kind).items()
        }
    orchestrations = find_new_orchestration_names(definition, renames[ChangeKind.ORCHESTRATION])
    ports = {old: new for new, old in renames[ChangeKind.SEND_PORT].old_names.items()}
    return replace(
        deployed,
        artifacts={**deployed.artifacts, **artifacts},
        renames=renames,
        # They refer to ids, so they move with the ports.
        bindings={
            (orchestrations.get(name, name), port): ports.get(target or "", target)
            for (name, port), target in deployed.bindings.items()
        },
        port_states={ports.get(name, name): state for name, state in deployed.port_states.items()},
    )


def _find_removed_services(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[uuid.UUID]:
    """Yield the ids of the ports, locations and orchestrations that are no longer declared."""
    for kind in KINDS_WITH_INSTANCES:
        declared = kind.get_declared(definition)
        yield from (kind.get_id(known) for name, known in deployed.get(kind).items() if name not in declared)


def _find_restored_services(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[uuid.UUID]:
    """Yield the ids of the send ports and receive locations that were removed and are declared again, under the same
    name or another one."""
    for kind in KINDS_WITH_INSTANCES:
        for name in kind.get_declared(definition).keys() - deployed.get(kind).keys():
            service_id = deployed.find_removed(kind.kind, name)
            if service_id is not None:
                yield service_id


def count_orphans(connection: Connection, definition: ApplicationDefinition, deployed: Deployed) -> Deployed:
    """Return the deployment with the instances of ports and locations that stay removed. Reads the queues whole."""
    orphaned = set(deployed.removed.values()) - set(_find_restored_services(definition, deployed))
    return replace(deployed, orphans=count_backlog(connection, orphaned))
