"""Reads and stores the deployed send port groups."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import Any

from psycopg.types.json import Jsonb

from postroom.messagebox.configuration.services import (
    Service,
    ServiceState,
    StoredState,
    delete_service,
    read_states,
    store_service,
    store_state,
)
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
    port_state: ServiceState
    subscription_id: int | None

    @property
    def is_enlisted(self) -> bool:
        return self.port_state is not ServiceState.BOUND


@dataclass(frozen=True, kw_only=True)
class SendPortGroup:
    """A send port group. Its state and those of its members are independent of each other."""

    group_id: uuid.UUID
    application: str
    definition: dict[str, Any]
    """The stored definition. The members are those that are deployed."""
    state: ServiceState
    members: tuple[GroupMember, ...]

    @property
    def name(self) -> str:
        return str(self.definition["name"])

    @property
    def filter(self) -> str | None:
        text: str | None = self.definition["filter"]
        return text

    @property
    def is_enlisted(self) -> bool:
        return self.state is not ServiceState.BOUND

    def get_disposition(self, member: GroupMember) -> MemberDisposition:
        """Return what happens to messages that are routed to a member through this group."""
        states = {self.state, member.port_state}
        if ServiceState.BOUND in states:
            return MemberDisposition.NONE
        return MemberDisposition.SUSPENDED if ServiceState.STOPPED in states else MemberDisposition.DELIVERED


def read_send_port_groups(connection: Connection, *, member: uuid.UUID | None = None) -> list[SendPortGroup]:
    """Return all send port groups, or those that a send port is a member of, by name."""
    rows = connection.execute(statement("queries/read_send_port_groups")).fetchall()
    member_rows = connection.execute(statement("queries/read_send_port_group_members")).fetchall()
    states = read_states(connection, [row[0] for row in rows] + [port_id for _, port_id, _ in member_rows])
    subscribed = "SELECT group_id, service_id, id FROM subscriptions WHERE group_id = ANY (%s) AND removed_at IS NULL"
    subscriptions = {
        (group_id, port_id): id for group_id, port_id, id in connection.execute(subscribed, ([row[0] for row in rows],))
    }
    members: defaultdict[uuid.UUID, list[GroupMember]] = defaultdict(list)
    for group_id, port_id, name in member_rows:
        members[group_id].append(
            GroupMember(
                port_id=port_id,
                port_name=name,
                port_state=states.get(port_id, StoredState()).state,
                subscription_id=subscriptions.get((group_id, port_id)),
            )
        )
    groups = [
        SendPortGroup(
            group_id=group_id,
            application=application,
            definition=definition,
            state=states.get(group_id, StoredState()).state,
            members=tuple(members[group_id]),
        )
        for group_id, application, definition in rows
    ]
    return [group for group in groups if member is None or any(port.port_id == member for port in group.members)]


def store_send_port_group(
    connection: Connection, definition: dict[str, Any], *, id: uuid.UUID, application_id: uuid.UUID
) -> SendPortGroup:
    """Store a new send port group, or another definition of an existing one, which keeps its id."""
    arguments = (id, application_id, Jsonb(definition))
    [(group_id, application, name)] = connection.execute(statement("queries/store_send_port_group"), arguments)
    service = Service(id=group_id, kind="send port group", application=application, name=name, port_name=name)
    store_service(connection, service)
    return get_send_port_group(connection, group_id)


def get_send_port_group(connection: Connection, group_id: uuid.UUID) -> SendPortGroup:
    """Return the send port group with this id."""
    return next(group for group in read_send_port_groups(connection) if group.group_id == group_id)


def set_group_state(connection: Connection, group_id: uuid.UUID, state: ServiceState) -> SendPortGroup:
    """Store the state of a send port group. Return the group."""
    store_state(connection, group_id, state)
    return get_send_port_group(connection, group_id)


def delete_send_port_group(connection: Connection, group_id: uuid.UUID) -> None:
    connection.execute("DELETE FROM send_port_groups WHERE id = %s", (group_id,))
    delete_service(connection, group_id)


def insert_member(connection: Connection, group_id: uuid.UUID, port_id: uuid.UUID) -> None:
    """Add a send port to a group."""
    connection.execute("INSERT INTO send_port_group_members (group_id, port_id) VALUES (%s, %s)", (group_id, port_id))


def delete_member(connection: Connection, group_id: uuid.UUID, port_id: uuid.UUID) -> None:
    """Remove a send port, which has no subscription through the group, from a group."""
    connection.execute("DELETE FROM send_port_group_members WHERE group_id = %s AND port_id = %s", (group_id, port_id))
