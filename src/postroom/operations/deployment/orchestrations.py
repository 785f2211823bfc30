"""Compare the orchestrations of an application with the deployed ones. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from postroom.application import ApplicationDefinition, OrchestrationDefinition
from postroom.errors import Problem, format_count, suggest_names
from postroom.filters.text import format_filter
from postroom.messagebox.orchestrations import DeployedOrchestration, format_name
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.differences import find_plain_differences
from postroom.operations.deployment.plan import Action, ChangeKind, Difference, PlanStep
from postroom.properties import dotted_name, split_key


def is_newest(definition: ApplicationDefinition, one: OrchestrationDefinition) -> bool:
    """Return True if there is no higher version. Only the newest version is activated by messages."""
    return all(other.version <= one.version for other in definition.orchestrations if other.name == one.name)


def plan_orchestrations(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[PlanStep]:
    """Yield what happens to each version of each orchestration."""
    declared = {(one.name, one.version) for one in definition.orchestrations}
    for key in sorted(deployed.orchestrations.keys() - declared):
        note = "only version 1" if key[1] == 1 and any(name == key[0] for name, _ in declared) else ""
        yield PlanStep(kind=ChangeKind.ORCHESTRATION, name=format_name(*key), action=Action.REMOVE, note=note)
    for one in definition.orchestrations:
        known = deployed.orchestrations.get((one.name, one.version))
        name = format_name(one.name, one.version)
        if known is None:
            activate = "is started by other orchestrations" if one.filter is None else format_filter(one.filter)
            note = "; ".join([f"{one.state}, {activate}", *_describe_lost_convoys(one, deployed)])
            yield PlanStep(kind=ChangeKind.ORCHESTRATION, name=name, action=Action.CREATE, note=note)
            continue
        built = replace(known, definition=one.to_stored(), is_newest=is_newest(definition, one))
        differences = find_plain_differences(
            _list_fields(built, one.host), _list_fields(known, deployed.host_name(known.host_id))
        )
        yield PlanStep(
            kind=ChangeKind.ORCHESTRATION,
            name=name,
            action=Action.CHANGE if differences else Action.KEEP,
            differences=differences,
            note=_describe_change(one, known, differences, deployed),
        )


def _describe_lost_convoys(one: OrchestrationDefinition, deployed: Deployed) -> Iterator[str]:
    """Yield the older versions whose instances would get no more messages, because the new version has another
    convoy."""
    for (name, version), known in sorted(deployed.orchestrations.items()):
        running = deployed.orchestration_instances.get(known.service_id, 0)
        is_older = name == one.name and version < one.version
        if is_older and running and known.convoy and list(known.convoy) != [prop.key for prop in one.convoy]:
            yield f"{format_count(running, 'instance')} of version {version} would get no more messages of the convoy"


def _list_fields(one: DeployedOrchestration, host: str) -> dict[str, Any]:
    """Return the stored fields of an orchestration, declared or deployed. Its state belongs to the operator."""
    return {
        "host": host.lower(),
        "file": one.file,
        "code": one.code,
        "activate": one.filter,
        "convoy": [dotted_name(*split_key(key)) for key in one.convoy],
        "ordered": one.is_ordered,
        "correlations": [" and ".join(dotted_name(*split_key(key)) for key in keys) for keys in one.correlations],
        "priority": one.priority,
        "newest version": one.is_newest,
    }


def _describe_change(
    one: OrchestrationDefinition,
    known: DeployedOrchestration,
    differences: tuple[Difference, ...],
    deployed: Deployed,
) -> str:
    state = known.state.name.lower()
    notes = [f"stays {state}"] if state != one.state and known.is_newest else []
    running = deployed.orchestration_instances.get(known.service_id, 0)
    if running and any(difference.field == "code" for difference in differences):
        notes.append(
            f"{format_count(running, 'instance')} of this version: those whose journal does not fit are suspended"
        )
    return "; ".join(notes)


def find_orchestration_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield orchestrations that another application has, and instances that would be left on another host."""
    others = {one.name: other.name for other in deployed.others for one in other.orchestrations}
    for one in definition.orchestrations:
        if one.name in others:
            yield one.position.problem(
                f"the application {others[one.name]!r} has an orchestration {one.name!r} too. Use another name."
            )
        known = deployed.orchestrations.get((one.name, one.version))
        running = 0 if known is None else deployed.orchestration_instances.get(known.service_id, 0)
        if known is None or not running:
            continue
        if deployed.host_name(known.host_id).lower() != one.host.lower():
            yield one.position.problem(
                f"orchestration {one.name!r} has {format_count(running, 'instance')} on host "
                f"{deployed.host_name(known.host_id)} and cannot move. Declare a new version on the other host."
            )
        if known.convoy and [prop.key for prop in one.convoy] != list(known.convoy):
            before = ", ".join(dotted_name(*split_key(key)) for key in known.convoy)
            yield one.position.problem(
                f"orchestration {one.name!r} has {format_count(running, 'instance')} with a convoy by {before}, which "
                "would get no more messages. Declare a new version with the other convoy when they have ended."
            )


def find_bound_port_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield orchestrations that send to ports which no application declares, or which cannot do what is asked of them.
    Names that are computed are checked when a message is sent."""
    applications = (definition, *deployed.others)
    ports = {port.name: port for one in applications for port in one.send_ports}
    groups = {group.name for one in applications for group in one.send_port_groups}
    for one in definition.orchestrations:
        for name, call in one.ports:
            if name not in ports and name not in groups:
                hint = suggest_names(name, [*ports, *groups], "There are")
                text = f"there is no send port or send port group {name!r}. Declare it, or correct the name. {hint}"
            elif name in ports and call == "request" and not ports[name].two_way:
                text = f"the send port {name!r} is one-way, so that a request gets no response. Use send or deliver."
            elif name in ports and call == "deliver" and ports[name].two_way:
                text = f"the send port {name!r} is two-way, so that nobody can wait for its delivery. Use request."
            else:
                continue
            yield one.position.problem(f"orchestration {format_name(one.name, one.version)!r}: {text}")


def find_orchestration_removal_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield versions that are no longer declared although they have instances."""
    declared = {(one.name, one.version) for one in definition.orchestrations}
    for key, known in sorted(deployed.orchestrations.items()):
        running = deployed.orchestration_instances.get(known.service_id, 0)
        if key not in declared and running:
            yield definition.position.problem(
                f"version {known.version} of the orchestration {known.name!r} is no longer declared, but has "
                f"{format_count(running, 'instance')}. Keep it until they have ended, or terminate them."
            )
