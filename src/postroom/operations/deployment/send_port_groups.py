"""Send port groups, as artifacts of an application."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from postroom.application import SendPortGroupDefinition
from postroom.errors import Problem
from postroom.filters.text import format_filter
from postroom.messagebox.configuration.applications import StoredApplication
from postroom.messagebox.configuration.send_port_groups import (
    GroupMember,
    SendPortGroup,
    delete_send_port_group,
    read_send_port_groups,
    store_send_port_group,
)
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.artifacts import ArtifactKind, Comparison, Deployed, Deployment
from postroom.operations.deployment.differences import find_plain_differences
from postroom.operations.deployment.endpoints import SEND_PORTS
from postroom.operations.deployment.plan import ChangeKind, Difference, PlanStep
from postroom.operations.ports.enlistment import (
    add_member,
    enlist_group,
    remove_member,
    resubscribe_group,
    start_group,
    unenlist_group,
)
from postroom.ports.send_ports import read_send_ports


class _SendPortGroups(ArtifactKind[SendPortGroupDefinition, SendPortGroup]):
    kind = ChangeKind.SEND_PORT_GROUP
    table = "send_port_groups"
    id_field = "group_id"

    def read(self, connection: Connection, application: StoredApplication) -> Iterable[SendPortGroup]:
        return [group for group in read_send_port_groups(connection) if group.application == application.name]

    def find_differences(
        self, compared: Comparison, declared: SendPortGroupDefinition, known: SendPortGroup
    ) -> tuple[Difference, ...]:
        members = sorted(_list_members(known, compared.deployed))
        return find_plain_differences(
            _list_fields(declared.to_stored()), _list_fields({**known.definition, "members": members})
        )

    def describe_new(self, compared: Comparison, declared: SendPortGroupDefinition) -> Iterator[str]:
        filter_text = "without a filter" if declared.filter is None else f"filter: {format_filter(declared.filter)}"
        yield f"{declared.state}, {filter_text}"
        yield f"members: {', '.join(declared.members) or 'none'}"

    def describe_removal(self, compared: Comparison, known: SendPortGroup) -> Iterator[str]:
        if known.is_enlisted:
            yield f"is {known.state.value} and will be unenlisted; instances stay"

    def find_problems(self, compared: Comparison) -> Iterator[Problem]:
        """Yield changes of groups that the states of groups and ports do not allow (SPT-11, SPT-12)."""
        ports = compared.deployed.get(SEND_PORTS)
        states = {
            port.name: ports[port.name].state if port.name in ports else ServiceState(port.state)
            for port in compared.definition.send_ports
        }
        for group in compared.definition.send_port_groups:
            known = compared.deployed.get(self).get(group.name)
            if known is None:
                texts = _check_new_group(group, states)
            else:
                texts = _check_changed_group(group, known, _list_members(known, compared.deployed), states)
            for text in texts:
                yield group.position.problem(f"send port group {group.name!r}: {text}")

    def prepare(self, deployment: Deployment, declared: SendPortGroupDefinition, known: SendPortGroup) -> None:
        """Remove members, whose ports may be removed next."""
        for name, member in _list_members(known, deployment.compared.deployed).items():
            if name not in declared.members:
                remove_member(deployment.connection, known, member.port_id)

    def store(
        self,
        deployment: Deployment,
        step: PlanStep,
        declared: SendPortGroupDefinition,
        known: SendPortGroup | None,
    ) -> None:
        """Store a new group, or a changed filter and new members. A new group gets its declared state."""
        connection = deployment.connection
        group = store_send_port_group(
            connection,
            declared.to_stored(),
            id=deployment.get_id(self, declared.name),
            application_id=deployment.application_id,
        )
        members = {member.port_name for member in group.members}
        for port in read_send_ports(connection):
            if port.name in declared.members and port.name not in members:
                group = add_member(connection, group, port)
        if known is None:
            if declared.state != "bound":
                group = enlist_group(connection, group)
            if declared.state == "started":
                start_group(connection, group)
        elif any(difference.field == "filter" for difference in step.differences):
            resubscribe_group(connection, group)

    def remove(self, deployment: Deployment, known: SendPortGroup) -> None:
        unenlist_group(deployment.connection, known)
        delete_send_port_group(deployment.connection, known.group_id)


SEND_PORT_GROUPS = _SendPortGroups()


def _list_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stored group. Its state belongs to the operator and is not among them."""
    return {field: value for field, value in stored.items() if field not in ("name", "state")}


def _list_members(group: SendPortGroup, deployed: Deployed) -> dict[str, GroupMember]:
    """Return the members of a deployed group by the names of their ports, which may be new."""
    names = {port.port_id: name for name, port in deployed.get(SEND_PORTS).items()}
    return {names.get(member.port_id, member.port_name): member for member in group.members}


def _check_new_group(group: SendPortGroupDefinition, states: Mapping[str, ServiceState]) -> Iterator[str]:
    if group.state == "started" and not _has_enlisted_member(group.members, states):
        yield (
            "it cannot start: it has no enlisted member. Enlist a member, or declare the group with state='stopped'."
        )


def _check_changed_group(
    group: SendPortGroupDefinition,
    known: SendPortGroup,
    members: Mapping[str, GroupMember],
    states: Mapping[str, ServiceState],
) -> Iterator[str]:
    for name in members:
        if name not in group.members and states.get(name) is ServiceState.STARTED:
            yield f"the started send port {name!r} cannot be removed. Stop it first: postroom port stop {name!r}"
    enlisted_before = any(member.is_enlisted for member in members.values())
    if known.is_enlisted and enlisted_before and not _has_enlisted_member(group.members, states):
        yield (
            f"it is {known.state.value} and would lose its last enlisted member. Unenlist the group first: "
            f"postroom group unenlist {group.name!r}"
        )


def _has_enlisted_member(members: Iterable[str], states: Mapping[str, ServiceState]) -> bool:
    return any(states[name] is not ServiceState.BOUND for name in members)
