"""Compare the send port groups of an application with the deployed ones, and store and remove them.

What stores and removes runs inside the caller's transaction and under the routing lock.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from postroom.application import ApplicationDefinition, SendPortGroupDefinition
from postroom.errors import Problem
from postroom.filters.text import format_filter
from postroom.messagebox.configuration.send_port_groups import (
    SendPortGroup,
    delete_send_port_group,
    store_send_port_group,
)
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.differences import find_plain_differences
from postroom.operations.deployment.plan import Action, ChangeKind, PlanStep
from postroom.operations.ports.enlistment import (
    add_member,
    enlist_group,
    remove_member,
    resubscribe_group,
    start_group,
    unenlist_group,
)
from postroom.ports.send_ports import read_send_ports


def plan_groups(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[PlanStep]:
    """Yield what happens to each group."""
    declared = {group.name for group in definition.send_port_groups}
    for name in sorted(deployed.send_port_groups.keys() - declared):
        state = deployed.send_port_groups[name].state.name.lower()
        note = "" if state == "bound" else f"is {state} and will be unenlisted; instances stay"
        yield PlanStep(kind=ChangeKind.SEND_PORT_GROUP, name=name, action=Action.REMOVE, note=note)
    for group in definition.send_port_groups:
        known = deployed.send_port_groups.get(group.name)
        if known is None:
            filter_text = "without a filter" if group.filter is None else f"filter: {format_filter(group.filter)}"
            note = f"{group.state}, {filter_text}; members: {', '.join(group.members) or 'none'}"
            yield PlanStep(kind=ChangeKind.SEND_PORT_GROUP, name=group.name, action=Action.CREATE, note=note)
            continue
        members = sorted(member.port_name for member in known.members)
        differences = find_plain_differences(
            _list_fields(group.to_stored()), _list_fields({**known.definition, "members": members})
        )
        state = known.state.name.lower()
        yield PlanStep(
            kind=ChangeKind.SEND_PORT_GROUP,
            name=group.name,
            action=Action.CHANGE if differences else Action.KEEP,
            differences=differences,
            note=f"stays {state}" if state != group.state else "",
        )


def _list_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored group. Its state belongs to the operator and is not among them."""
    return {field: stored[field] for field in ("members", "filter", "description")}


def find_group_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield changes of groups that the states of groups and ports do not allow (SPT-11, SPT-12)."""
    states = {port.name: _get_new_state(port.name, port.state, deployed) for port in definition.send_ports}
    for group in definition.send_port_groups:
        known = deployed.send_port_groups.get(group.name)
        texts = _check_new_group(group, states) if known is None else _check_changed_group(group, known, states)
        for text in texts:
            yield Problem(f"send port group {group.name!r}: {text}", group.position.file, group.position.line)


def _get_new_state(name: str, declared: str, deployed: Deployed) -> ServiceState:
    known = deployed.send_ports.get(name)
    return ServiceState(declared) if known is None else known.state


def _check_new_group(group: SendPortGroupDefinition, states: dict[str, ServiceState]) -> Iterator[str]:
    if group.state == "started" and not _has_enlisted_member(group.members, states):
        yield (
            "it cannot start: it has no enlisted member. Enlist a member, or declare the group with state='stopped'."
        )


def _check_changed_group(
    group: SendPortGroupDefinition, known: SendPortGroup, states: dict[str, ServiceState]
) -> Iterator[str]:
    before = [member.port_name for member in known.members]
    for name in before:
        if name not in group.members and states.get(name) is ServiceState.STARTED:
            yield f"the started send port {name!r} cannot be removed. Stop it first: postroom port stop {name!r}"
    enlisted_before = any(member.is_enlisted for member in known.members)
    if known.is_enlisted and enlisted_before and not _has_enlisted_member(group.members, states):
        yield (
            f"it is {known.state.name.lower()} and would lose its last enlisted member. Unenlist the group first: "
            f"postroom group unenlist {group.name!r}"
        )


def _has_enlisted_member(members: Iterable[str], states: dict[str, ServiceState]) -> bool:
    return any(states[name] is not ServiceState.BOUND for name in members)


def remove_groups_and_members(connection: Connection, definition: ApplicationDefinition, deployed: Deployed) -> None:
    """Remove the groups that are not declared any more, and members from the others. Call it before the ports of the
    members are removed."""
    declared = {group.name: group for group in definition.send_port_groups}
    for group in deployed.send_port_groups.values():
        if group.name not in declared:
            unenlist_group(connection, group)
            delete_send_port_group(connection, group.group_id)
            continue
        for member in group.members:
            if member.port_name not in declared[group.name].members:
                remove_member(connection, group, member.port_id)


def store_group(
    connection: Connection,
    declared: SendPortGroupDefinition,
    step: PlanStep,
    *,
    id: uuid.UUID,
    application_id: uuid.UUID,
) -> None:
    """Store a new group, or a changed filter and new members. A new group gets its declared state."""
    group = _store_group(connection, declared, id, application_id)
    if step.action is Action.CREATE:
        if declared.state != "bound":
            group = enlist_group(connection, group)
        if declared.state == "started":
            start_group(connection, group)
    elif "filter" in {difference.field for difference in step.differences}:
        resubscribe_group(connection, group)


def _store_group(
    connection: Connection, declared: SendPortGroupDefinition, id: uuid.UUID, application_id: uuid.UUID
) -> SendPortGroup:
    group = store_send_port_group(connection, declared.to_stored(), id=id, application_id=application_id)
    known = {member.port_name for member in group.members}
    for port in read_send_ports(connection):
        if port.name in declared.members and port.name not in known:
            group = add_member(connection, group, port)
    return group
