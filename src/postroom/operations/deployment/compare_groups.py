"""The send port groups of an application compared with those that are deployed: a pure function of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from postroom.application import ApplicationDefinition, SendPortGroupDefinition
from postroom.errors import Problem
from postroom.filters.text import format_filter
from postroom.messagebox.configuration import PortState, SendPortGroup
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.plan import Action, Difference, Kind, Step


def plan_groups(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Step]:
    """What happens to each group."""
    declared = {group.name for group in definition.send_port_groups}
    for name in sorted(deployed.send_port_groups.keys() - declared):
        state = deployed.send_port_groups[name].state.name.lower()
        note = "" if state == "bound" else f"is {state}: unenlisted first; instances stay"
        yield Step(kind=Kind.SEND_PORT_GROUP, name=name, action=Action.REMOVE, note=note)
    for group in definition.send_port_groups:
        known = deployed.send_port_groups.get(group.name)
        if known is None:
            said = "without a filter" if group.filter is None else f"filter: {format_filter(group.filter)}"
            note = f"{group.state}, {said}; members: {_text(list(group.members))}"
            yield Step(kind=Kind.SEND_PORT_GROUP, name=group.name, action=Action.CREATE, note=note)
            continue
        before, after = _deployed_fields(known), group_fields(group)
        differences = tuple(
            Difference(field=field, before=_text(before[field]), after=_text(after[field]))
            for field in after
            if before[field] != after[field]
        )
        kept = known.state.name.lower()
        yield Step(
            kind=Kind.SEND_PORT_GROUP,
            name=group.name,
            action=Action.CHANGE if differences else Action.KEEP,
            differences=differences,
            note=f"stays {kept}" if kept != group.state else "",
        )


def group_fields(group: SendPortGroupDefinition) -> dict[str, Any]:
    """What is stored of a group and follows its declaration. Its state belongs to the operator."""
    return {
        "members": list(group.members),
        "filter": None if group.filter is None else format_filter(group.filter),
        "description": group.description,
    }


def _deployed_fields(group: SendPortGroup) -> dict[str, Any]:
    members = sorted(member.port_name for member in group.members)
    return {"members": members, "filter": group.filter, "description": group.description}


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)


def find_group_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """What the states of groups and ports do not allow now (SPT-11, SPT-12)."""
    states = {port.name: _state_after(port.name, port.state, deployed) for port in definition.send_ports}
    for group in definition.send_port_groups:
        known = deployed.send_port_groups.get(group.name)
        texts = _new_problems(group, states) if known is None else _change_problems(group, known, states)
        for text in texts:
            yield Problem(f"send port group {group.name!r}: {text}", group.place.file, group.place.line)


def _state_after(name: str, declared: str, deployed: Deployed) -> PortState:
    known = deployed.send_ports.get(name)
    return PortState[declared.upper()] if known is None else known.state


def _new_problems(group: SendPortGroupDefinition, states: dict[str, PortState]) -> Iterator[str]:
    if group.state == "started" and not _enlisted(group.members, states):
        yield (
            "it is to be started, but none of its members is enlisted. Enlist one of them, or declare the group with "
            "state='stopped'."
        )


def _change_problems(
    group: SendPortGroupDefinition, known: SendPortGroup, states: dict[str, PortState]
) -> Iterator[str]:
    before = [member.port_name for member in known.members]
    for name in before:
        if name not in group.members and states.get(name) is PortState.STARTED:
            yield f"send port {name!r} is to leave it, but is started. Stop it first: postroom port stop {name!r}"
    enlisted_before = any(member.is_enlisted for member in known.members)
    if known.is_enlisted and enlisted_before and not _enlisted(group.members, states):
        yield (
            f"it is {known.state.name.lower()}, and would lose its last enlisted member. Unenlist the group first: "
            f"postroom group unenlist {group.name!r}"
        )


def _enlisted(members: Iterable[str], states: dict[str, PortState]) -> bool:
    return any(states[name] is not PortState.BOUND for name in members)
