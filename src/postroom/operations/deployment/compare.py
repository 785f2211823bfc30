"""Compare an application with the deployment. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from postroom.application import ApplicationDefinition, conflicts
from postroom.application.checks.shared_endpoints import shared_endpoint_problems
from postroom.errors import Problem, sort_problems
from postroom.operations.deployment.artifacts import Comparison, Deployed
from postroom.operations.deployment.backlog import build_backlog_problem
from postroom.operations.deployment.deployed import KINDS, KINDS_WITH_INSTANCES
from postroom.operations.deployment.hosts import find_host_problems, plan_hosts
from postroom.operations.deployment.plan import Action, ChangeKind, Difference, Plan, PlanStep
from postroom.operations.instances.preview import format_counts
from postroom.system_properties import SYSTEM_PROPERTIES
from postroom.values import ValueType

#: The system properties are deployed together, as one step.
ALL_SYSTEM_PROPERTIES = "system properties"

#: The artifacts in the definition of an application. Their order has no meaning.
_ARTIFACTS = ("receive_ports", "locations", "send_ports", "send_port_groups", "orchestrations", "lookups")


def find_problems(compared: Comparison) -> tuple[Problem, ...]:
    """Return the conflicts of an application, or of a part of it, with the deployment.

    Removals are not checked: what is missing in a part may be declared in the rest."""
    definition, deployed = compared.definition, compared.deployed
    return (
        *(problem for kind, renames in deployed.renames.items() for problem in renames.find_problems(kind)),
        *conflicts(definition, deployed.others),
        *shared_endpoint_problems(definition, deployed.others, compared.home),
        *_find_type_problems(definition, deployed),
        *find_host_problems(definition, deployed),
        *(problem for kind in KINDS for problem in kind.find_problems(compared)),
    )


def compare(compared: Comparison) -> Plan:
    """Return the plan that deploys an application."""
    definition, deployed = compared.definition, compared.deployed
    steps = (
        *plan_hosts(definition, deployed),
        *_plan_properties(definition, deployed),
        *(step for kind in KINDS for step in kind.plan(compared)),
    )
    return Plan(
        application=definition.name,
        steps=(_plan_application(definition, deployed, steps), *steps),
        problems=sort_problems(
            [
                *find_problems(compared),
                *(problem for kind in KINDS for problem in kind.find_problems_of_whole(compared)),
                *find_backlog_problems(compared),
            ]
        ),
        forbidden_hosts=tuple(
            step.name
            for step in steps
            if step.kind is ChangeKind.HOST and step.action is Action.CREATE and not deployed.can_create_hosts
        ),
        notes=tuple(_describe_orphans(definition, deployed)),
        hosts=_find_hosts(definition, deployed),
    )


def _find_hosts(definition: ApplicationDefinition, deployed: Deployed) -> tuple[str, ...]:
    """Return the hosts that the application uses as declared or as deployed."""
    declared = (each for kind in KINDS for each in kind.list_declared(definition))
    known = (each for artifacts in deployed.artifacts.values() for each in artifacts.values())
    names = (
        *(host.name for host in definition.hosts),
        *(each.host for each in declared if hasattr(each, "host")),
        *map(deployed.host_name, {each.host_id for each in known if hasattr(each, "host_id")}),
    )
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
            *(("lookup", lookup.name, lookup.filter, lookup.position) for lookup in definition.lookups),
        ]
        for what, name, filter, position in filters:
            groups = () if filter is None else filter.groups
            if any(predicate.property.key == prop.key for group in groups for predicate in group):
                yield position.problem(
                    f"{what} {name!r}: the filter compares {prop.dotted_name} with values of type "
                    f"{_format_type(prop.value_type)}, but it is deployed as {_format_type(deployed_type)}."
                )


def find_backlog_problems(compared: Comparison) -> Iterator[Problem]:
    """Yield the removed ports and locations that have instances, if it was not decided what becomes of these."""
    for kind in KINDS_WITH_INSTANCES if compared.backlog is None else ():
        for name, known in compared.deployed.get(kind).items():
            if counts := compared.deployed.backlog.get(kind.get_id(known)):
                # Without a position: a file without this port is correct. The decision is an option of the command.
                yield Problem(build_backlog_problem(kind.kind, name, counts))


def _describe_orphans(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[str]:
    """Yield a sentence about each port or location that was removed before and still has instances."""
    renamed = {
        (kind.kind, kind.get_old_name(declared)): kind.get_name(declared)
        for kind in KINDS_WITH_INSTANCES
        for declared in kind.list_declared(definition)
    }
    for (kind, name), service_id in sorted(deployed.removed.items()):
        if counts := deployed.orphans.get(service_id):
            new_name = renamed.get((ChangeKind(kind), name))
            stays = f" {new_name!r} does not take them over, because it existed before." if new_name else ""
            command = "reroute --all" if kind in (ChangeKind.SEND_PORT, ChangeKind.LOOKUP) else "list"
            # The instances of an orchestration are listed with all of its versions.
            port = "" if kind == ChangeKind.ORCHESTRATION else f" --port {quote(name)}"
            yield (
                f"The {kind} {name!r} was removed before and still has {format_counts(counts)}.{stays}"
                f" Continue with: postroom instance {command}{port} --removed"
            )


def _format_type(value_type: ValueType) -> str:
    return value_type.python_type.__name__


# -- steps ---------------------------------------------------------------------------------------------------------


def _plan_application(definition: ApplicationDefinition, deployed: Deployed, steps: tuple[PlanStep, ...]) -> PlanStep:
    note = ""
    if deployed.definition is None:
        action = Action.CREATE
    elif _sort_artifacts(deployed.definition) == _sort_artifacts(definition.to_stored()):
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


def _sort_artifacts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored definition of an application, or of a receive port, with its artifacts by name and version."""
    return {
        field: value
        if field not in _ARTIFACTS
        else sorted(map(_sort_artifacts, value), key=lambda each: (each["name"], each.get("version")))
        for field, value in stored.items()
    }
