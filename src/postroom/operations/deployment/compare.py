"""Compare an application with the deployment. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from os.path import normpath
from pathlib import Path

from postroom.adapters import File, SendDefinition, SinkDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.application import (
    ApplicationDefinition,
    SendPortDefinition,
    conflicts,
)
from postroom.application.checks.shared_endpoints import shared_endpoint_problems
from postroom.errors import Problem, sort_problems
from postroom.filters.text import format_filter
from postroom.operations.deployment.backlog import Backlog, describe_backlog, describe_restored
from postroom.operations.deployment.declared_fields import (
    ORDERED,
    location_fields,
    receive_port_fields,
    send_port_fields,
)
from postroom.operations.deployment.deployed import Deployed, sort_artifacts
from postroom.operations.deployment.differences import find_differences
from postroom.operations.deployment.hosts import find_host_problems, plan_hosts
from postroom.operations.deployment.orchestrations import (
    find_bound_port_problems,
    find_orchestration_problems,
    find_orchestration_removal_problems,
    plan_orchestrations,
)
from postroom.operations.deployment.plan import Action, ChangeKind, Difference, Plan, PlanStep
from postroom.operations.deployment.removals import describe_orphans, find_backlog_problems, find_removal_problems
from postroom.operations.deployment.renames import Renames
from postroom.operations.deployment.send_port_groups import find_group_problems, plan_groups
from postroom.ports.receive_locations import build_receive_location
from postroom.ports.send_ports import build_send_port
from postroom.system_properties import SYSTEM_PROPERTIES
from postroom.values import ValueType

#: The system properties are deployed together, as one step.
ALL_SYSTEM_PROPERTIES = "system properties"


_SINK = "a Spark sink"
_RENAMED = "renamed: its instances move with it"


def find_problems(definition: ApplicationDefinition, deployed: Deployed, home: Path) -> tuple[Problem, ...]:
    """Return the conflicts of an application, or of a part of it, with the deployment.

    Removals are not checked: what is missing in a part may be declared in the rest."""
    return (
        *deployed.port_renames.find_problems("send port"),
        *deployed.location_renames.find_problems("location"),
        *conflicts(definition, deployed.others),
        *shared_endpoint_problems(definition, deployed.others, home),
        *_find_type_problems(definition, deployed),
        *find_host_problems(definition, deployed),
        *_find_kind_problems(definition, deployed),
        *find_group_problems(definition, deployed),
        *find_orchestration_problems(definition, deployed),
    )


def compare(definition: ApplicationDefinition, deployed: Deployed, home: Path, backlog: Backlog | None = None) -> Plan:
    """Return the plan that deploys ``definition``. Relative paths in it are relative to ``home``. ``backlog`` is what
    becomes of the instances of removed ports and locations. Without it they may have none."""
    steps = (
        *plan_hosts(definition, deployed),
        *_plan_properties(definition, deployed),
        *_plan_receive_ports(definition, deployed),
        *_plan_locations(definition, deployed, home, backlog),
        *_plan_send_ports(definition, deployed, home, backlog),
        *plan_groups(definition, deployed),
        *plan_orchestrations(definition, deployed),
    )
    return Plan(
        application=definition.name,
        steps=(_plan_application(definition, deployed, steps), *steps),
        problems=sort_problems(
            [
                *find_problems(definition, deployed, home),
                *find_removal_problems(definition, deployed),
                *find_bound_port_problems(definition, deployed),
                *find_orchestration_removal_problems(definition, deployed),
                *(find_backlog_problems(definition, deployed) if backlog is None else ()),
            ]
        ),
        forbidden_hosts=tuple(
            step.name
            for step in steps
            if step.kind is ChangeKind.HOST and step.action is Action.CREATE and not deployed.can_create_hosts
        ),
        notes=tuple(describe_orphans(definition, deployed)),
        hosts=_find_hosts(definition, deployed),
    )


def _find_hosts(definition: ApplicationDefinition, deployed: Deployed) -> tuple[str, ...]:
    """Return the hosts that the application uses as declared or as deployed."""
    declared = [
        *(host.name for host in definition.hosts),
        *(location.host for port in definition.receive_ports for location in port.locations),
        *(port.host for port in definition.send_ports),
        *(one.host for one in definition.orchestrations),
    ]
    host_ids = {
        *(location.host_id for location in deployed.locations.values()),
        *(port.host_id for port in deployed.send_ports.values()),
        *(one.host_id for one in deployed.orchestrations.values()),
    }
    names = (*declared, *map(deployed.host_name, host_ids))
    return tuple(sorted({name.lower(): name for name in names}.values()))


# -- problems ------------------------------------------------------------------------------------------------------


def _find_type_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the properties whose type differs. A property stays deployed forever, and its type cannot change."""
    declared_elsewhere = {prop.key for other in deployed.others for prop in other.properties}
    for prop in definition.properties:
        deployed_type = deployed.properties.get(prop.key, prop.value_type)
        if deployed_type is prop.value_type:
            continue
        if prop.key not in declared_elsewhere:
            yield definition.position.problem(
                f"{prop.dotted_name} has the type {_format_type(prop.value_type)} here, but is deployed as "
                f"{_format_type(deployed_type)}. The type of a property cannot change. Use another name."
            )
        filters = [
            *(("send port", port.name, port.filter, port.position) for port in definition.send_ports),
            *(("send port group", group.name, group.filter, group.position) for group in definition.send_port_groups),
        ]
        for what, name, filter, position in filters:
            groups = () if filter is None else filter.groups
            if any(predicate.property.key == prop.key for group in groups for predicate in group):
                yield position.problem(
                    f"{what} {name!r}: the filter compares {prop.dotted_name} with values of type "
                    f"{_format_type(prop.value_type)}, but it is deployed as {_format_type(deployed_type)}."
                )


def _find_kind_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the ports that change between static, dynamic and sink, which is not possible (SPT-14)."""
    for port in definition.send_ports:
        known = deployed.send_ports.get(port.name)
        if known is None:
            continue
        before, after = _get_port_kind(known.adapter_type), _get_port_kind(type(port.adapter))
        if before != after:
            deployed_as = before if before == _SINK else f"a {before} one"
            yield port.position.problem(
                f"send port {port.name!r} is deployed as {deployed_as} and cannot become {after}. Use another name, "
                "or apply the application without the port first."
            )


def _get_port_kind(adapter: type[SendDefinition]) -> str:
    return "dynamic" if issubclass(adapter, Dynamic) else _SINK if issubclass(adapter, SinkDefinition) else "static"


def _format_type(value_type: ValueType) -> str:
    return value_type.python_type.__name__


# -- steps ---------------------------------------------------------------------------------------------------------


def _plan_application(definition: ApplicationDefinition, deployed: Deployed, steps: tuple[PlanStep, ...]) -> PlanStep:
    note = ""
    if deployed.definition is None:
        action = Action.CREATE
    elif deployed.definition == sort_artifacts(definition.to_stored()):
        action = Action.KEEP
    else:
        action = Action.CHANGE
        changed = sum(step.action is not Action.KEEP for step in steps)
        note = f"{changed} of its objects, see below" if changed else "only the stored definition; everything runs on"
    return PlanStep(kind=ChangeKind.APPLICATION, name=definition.name, action=action, note=note)


def _plan_properties(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[PlanStep]:
    missing = SYSTEM_PROPERTIES.keys() - deployed.properties.keys()
    if missing:
        yield PlanStep(
            kind=ChangeKind.PROPERTY,
            name=ALL_SYSTEM_PROPERTIES,
            action=Action.CREATE,
            # The schema has some of them from the start, so a first deployment would not show all.
            note=f"{len(missing if deployed.hosts else SYSTEM_PROPERTIES)} properties",
        )
    for prop in definition.properties:
        if prop.sensitive and prop.key in deployed.properties and prop.key not in deployed.sensitive:
            difference = Difference(field="sensitive", before="no", after="yes")
            yield PlanStep(
                kind=ChangeKind.PROPERTY, name=prop.dotted_name, action=Action.CHANGE, differences=(difference,)
            )
        elif prop.key in deployed.properties:
            yield PlanStep(kind=ChangeKind.PROPERTY, name=prop.dotted_name, action=Action.KEEP)
        else:
            yield PlanStep(
                kind=ChangeKind.PROPERTY,
                name=prop.dotted_name,
                action=Action.CREATE,
                note=_format_type(prop.value_type),
            )


def _plan_receive_ports(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[PlanStep]:
    declared = {port.name for port in definition.receive_ports}
    for name in sorted(deployed.receive_ports.keys() - declared):
        yield PlanStep(kind=ChangeKind.RECEIVE_PORT, name=name, action=Action.REMOVE)
    for port in definition.receive_ports:
        known = deployed.receive_ports.get(port.name)
        if known is None:
            notes = (
                "routes failures" if port.route_failures else "",
                "" if port.authentication == "none" else f"requires authentication ({port.authentication})",
            )
            note = ", ".join(filter(None, notes))
            yield PlanStep(kind=ChangeKind.RECEIVE_PORT, name=port.name, action=Action.CREATE, note=note)
            continue
        differences = find_differences(receive_port_fields(port.to_stored()), receive_port_fields(known.definition))
        action = Action.CHANGE if differences else Action.KEEP
        yield PlanStep(kind=ChangeKind.RECEIVE_PORT, name=port.name, action=action, differences=differences)


def _plan_locations(
    definition: ApplicationDefinition, deployed: Deployed, home: Path, backlog: Backlog | None
) -> Iterator[PlanStep]:
    declared = {location.name: (port, location) for port in definition.receive_ports for location in port.locations}
    for name in sorted(deployed.locations.keys() - declared.keys()):
        note = describe_backlog(deployed.backlog.get(deployed.locations[name].location_id), backlog)
        yield PlanStep(kind=ChangeKind.LOCATION, name=name, action=Action.REMOVE, note=note)
    for name, (port, location) in declared.items():
        known = deployed.locations.get(name)
        if known is None:
            state = "enabled" if location.enabled else "disabled"
            note = "; ".join(filter(None, (state, _describe_restored(ChangeKind.LOCATION, name, deployed))))
            yield PlanStep(kind=ChangeKind.LOCATION, name=name, action=Action.CREATE, note=note)
            continue
        built = build_receive_location(
            port,
            location,
            location_id=known.location_id,
            port_id=known.port_id,
            host_id=known.host_id,
            home=home,
        )
        # A schedule that is not declared belongs to the operator.
        built = replace(built, schedule=built.schedule or known.schedule)
        differences = _describe_rename(name, deployed.location_renames) + find_differences(
            location_fields(built, location.host), location_fields(known, deployed.host_name(known.host_id))
        )
        state = "enabled" if known.enabled else "disabled"
        yield PlanStep(
            kind=ChangeKind.LOCATION,
            name=name,
            action=Action.CHANGE if differences else Action.KEEP,
            differences=differences,
            note="; ".join(
                [
                    *([_RENAMED] if name in deployed.location_renames.old_names else []),
                    *([f"stays {state}"] if known.enabled != location.enabled else []),
                ]
            ),
        )


def _plan_send_ports(
    definition: ApplicationDefinition, deployed: Deployed, home: Path, backlog: Backlog | None
) -> Iterator[PlanStep]:
    declared = {port.name for port in definition.send_ports}
    for name in sorted(deployed.send_ports.keys() - declared):
        removed = deployed.send_ports[name]
        state = removed.state.name.lower()
        unenlisted = "" if state == "bound" else f"is {state} and will be unenlisted"
        note = "; ".join(filter(None, (unenlisted, describe_backlog(deployed.backlog.get(removed.port_id), backlog))))
        yield PlanStep(kind=ChangeKind.SEND_PORT, name=name, action=Action.REMOVE, note=note)
    for port in definition.send_ports:
        known = deployed.send_ports.get(port.name)
        loop = _describe_loop(port, definition, deployed, home)
        if known is None:
            filter_text = "without a filter" if port.filter is None else f"filter: {format_filter(port.filter)}"
            dynamic = "dynamic, " if isinstance(port.adapter, Dynamic) else ""
            restored = _describe_restored(ChangeKind.SEND_PORT, port.name, deployed)
            state = f"{port.state}, {dynamic}{filter_text}"
            note = "; ".join(filter(None, (state, *port.list_notes(), restored, loop, port.adapter.guarantee)))
            yield PlanStep(kind=ChangeKind.SEND_PORT, name=port.name, action=Action.CREATE, note=note)
            continue
        built = build_send_port(port, port_id=known.port_id, host_id=known.host_id, home=home)
        differences = _describe_rename(port.name, deployed.port_renames) + find_differences(
            send_port_fields(built, port.host), send_port_fields(known, deployed.host_name(known.host_id))
        )
        state = known.state.name.lower()
        notes = [_RENAMED] if port.name in deployed.port_renames.old_names else []
        notes += [f"stays {state}"] if state != port.state else []
        if any(difference.field == "host" for difference in differences):
            old = deployed.host_name(known.host_id)
            notes.append(f"queued messages stay with host {old}, which has to run until they are sent")
        if any(difference.field == ORDERED for difference in differences):
            notes.append("queued messages keep the way in which they were queued")
        yield PlanStep(
            kind=ChangeKind.SEND_PORT,
            name=port.name,
            action=Action.CHANGE if differences else Action.KEEP,
            differences=differences,
            note="; ".join([*notes, *filter(None, (loop, port.adapter.guarantee))]),
        )


def _describe_restored(kind: ChangeKind, name: str, deployed: Deployed) -> str:
    service_id = deployed.find_removed(kind, name)
    if service_id is None:
        return ""
    old_name = deployed.get_removed_name(kind, name)
    return describe_restored(deployed.backlog.get(service_id), None if old_name == name else old_name)


def _describe_rename(name: str, renames: Renames) -> tuple[Difference, ...]:
    old = renames.old_names.get(name)
    return () if old is None else (Difference(field="name", before=old, after=name),)


def _describe_loop(port: SendPortDefinition, definition: ApplicationDefinition, deployed: Deployed, home: Path) -> str:
    """Return a note if the port writes into a watched folder. That is allowed, but may be an endless loop."""
    if not isinstance(port.adapter, File):
        return ""
    folder = normpath(port.adapter.folder(home))
    watching = [
        location.name
        for application in (definition, *deployed.others)
        for receive_port in application.receive_ports
        for location in receive_port.locations
        if isinstance(location.adapter, File) and normpath(location.adapter.folder(home)) == folder
    ]
    return f"writes into the folder of location {', '.join(watching)}, which receives its files" if watching else ""
