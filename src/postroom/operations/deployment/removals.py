"""What an application does not declare any more, and what prevents its removal. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from postroom.application import ApplicationDefinition
from postroom.errors import Problem
from postroom.operations.deployment.backlog import build_backlog_problem
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.plan import ChangeKind
from postroom.operations.instances.preview import format_counts


def find_removed_locations(definition: ApplicationDefinition, deployed: Deployed) -> dict[str, str | None]:
    """Return the locations that are no longer declared, or only with an adapter of another kind.

    The value is the new kind of adapter, or None."""
    declared = {
        location.name: location.adapter.kind for port in definition.receive_ports for location in port.locations
    }
    return {
        name: declared.get(name)
        for name, location in deployed.locations.items()
        if location.adapter_kind != declared.get(name)
    }


def find_removal_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the removed locations with files that only their own pipeline can publish."""
    for name, new_kind in find_removed_locations(definition, deployed).items():
        count = deployed.unfinished_files.get(deployed.locations[name].location_id, 0)
        if count:
            change = "removed" if new_kind is None else f"changed to the kind {new_kind!r}"
            unit = deployed.locations[name].adapter_type.intake_unit
            received = f"1 received {unit} is" if count == 1 else f"{count} received {unit}s are"
            yield definition.position.problem(
                f"location {name!r} cannot be {change}: {received} not published yet. Let the pipeline finish first; "
                "'postroom pipeline show' shows what is quarantined."
            )


def find_backlog_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the removed ports and locations that have instances."""
    removed = [
        *((ChangeKind.LOCATION, name, location.location_id) for name, location in deployed.locations.items()),
        *((ChangeKind.SEND_PORT, name, port.port_id) for name, port in deployed.send_ports.items()),
    ]
    for kind, name, service_id in removed:
        if counts := deployed.backlog.get(service_id):
            # Without a position: a file without this port is correct. The decision is an option of the command.
            yield Problem(build_backlog_problem(kind, name, counts))


def describe_orphans(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[str]:
    """Yield a sentence about each port or location that was removed before and still has instances."""
    locations = (location for port in definition.receive_ports for location in port.locations)
    renamed = {
        **{(ChangeKind.SEND_PORT, port.renamed_from): port.name for port in definition.send_ports},
        **{(ChangeKind.LOCATION, location.renamed_from): location.name for location in locations},
    }
    for (kind, name), service_id in sorted(deployed.removed.items()):
        if counts := deployed.orphans.get(service_id):
            new_name = renamed.get((ChangeKind(kind), name))
            stays = f" {new_name!r} does not take them over, because it existed before." if new_name else ""
            command = "reroute --all" if kind == ChangeKind.SEND_PORT else "list"
            yield (
                f"The {kind} {name!r} was removed before and still has {format_counts(counts)}.{stays}"
                f" Continue with: postroom instance {command} --port {quote(name)} --removed"
            )
