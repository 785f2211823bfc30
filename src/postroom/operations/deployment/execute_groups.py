"""Store and remove the send port groups of a plan, inside the caller's transaction and under the routing lock."""

from __future__ import annotations

import uuid

from postroom.application import ApplicationDefinition, SendPortGroupDefinition
from postroom.messagebox.configuration.send_port_groups import (
    SendPortGroup,
    delete_send_port_group,
    store_send_port_group,
)
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.compare_groups import group_fields
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.plan import Action, PlanStep
from postroom.operations.ports.enlistment import (
    add_member,
    enlist_group,
    remove_member,
    resubscribe_group,
    start_group,
    unenlist_group,
)
from postroom.ports.send_ports import read_send_ports


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
    fields = group_fields(declared)
    group = store_send_port_group(
        connection,
        id=id,
        application_id=application_id,
        name=declared.name,
        description=fields["description"],
        filter=fields["filter"],
    )
    known = {member.port_name for member in group.members}
    for port in read_send_ports(connection):
        if port.name in declared.members and port.name not in known:
            group = add_member(connection, group, port)
    return group
