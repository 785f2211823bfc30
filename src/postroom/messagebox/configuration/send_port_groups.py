"""Reads the deployed send port groups."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum

from postroom.messagebox.configuration.endpoints import PortState
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


class MemberDisposition(Enum):
    """What happens to a message, by the states of a send port group and of its member (SPT-13)."""

    DELIVERED = "delivered"
    SUSPENDED = "suspended"
    NONE = "nothing"


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """A send port in a group. It has a subscription through the group while both are enlisted."""

    port_id: uuid.UUID
    port_name: str
    port_state: PortState
    subscription_id: int | None

    @property
    def is_enlisted(self) -> bool:
        return self.port_state is not PortState.BOUND


@dataclass(frozen=True, kw_only=True)
class SendPortGroup:
    """A send port group. Its state and those of its members are independent of each other."""

    group_id: uuid.UUID
    application: str
    name: str
    description: str
    filter: str | None
    state: PortState
    members: tuple[GroupMember, ...]

    @property
    def is_enlisted(self) -> bool:
        return self.state is not PortState.BOUND

    def get_disposition(self, member: GroupMember) -> MemberDisposition:
        """Return what happens to messages that are routed to a member through this group."""
        states = {self.state, member.port_state}
        if PortState.BOUND in states:
            return MemberDisposition.NONE
        return MemberDisposition.SUSPENDED if PortState.STOPPED in states else MemberDisposition.DELIVERED


def read_send_port_groups(connection: Connection, *, member: uuid.UUID | None = None) -> list[SendPortGroup]:
    """Return all send port groups, or those that a send port is a member of, by name."""
    members: defaultdict[uuid.UUID, list[GroupMember]] = defaultdict(list)
    for group_id, port_id, name, state, subscription_id in connection.execute(
        statement("queries/read_send_port_group_members")
    ):
        members[group_id].append(
            GroupMember(port_id=port_id, port_name=name, port_state=PortState(state), subscription_id=subscription_id)
        )
    rows = connection.execute(statement("queries/read_send_port_groups"))
    groups = [
        SendPortGroup(
            group_id=group_id,
            application=application,
            name=name,
            description=description,
            filter=filter,
            state=PortState(state),
            members=tuple(members[group_id]),
        )
        for group_id, application, name, description, filter, state in rows
    ]
    return [group for group in groups if member is None or any(port.port_id == member for port in group.members)]
