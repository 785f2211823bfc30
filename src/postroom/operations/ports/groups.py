"""List, enlist, start, stop and unenlist send port groups (SPT-11 … 13).

A group has the same states as a send port, independent of its members. A message that comes through a group is
delivered while group and member are started. It is suspended while both are enlisted and one of them is stopped. It is
not routed to the member while either is unenlisted. The application declares the members.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.errors import StateError, find_named
from postroom.messagebox.configuration.send_port_groups import (
    MemberDisposition,
    SendPortGroup,
    read_send_port_groups,
)
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.operations.ports.enlistment import enlist_group, unenlist_group
from postroom.operations.ports.states import StateOperations
from postroom.operations.records import extend


@dataclass(frozen=True, kw_only=True)
class _Group:
    name: str
    state: ServiceState
    application: str
    filter: str | None
    description: str
    group_id: uuid.UUID


@dataclass(frozen=True, kw_only=True)
class GroupListing(_Group):
    """A send port group with the names of its members."""

    members: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class MemberListing:
    """A member of a send port group, and what happens to messages that come to it through the group."""

    member: str
    state: ServiceState
    through_the_group: MemberDisposition
    subscription_id: int | None


@dataclass(frozen=True, kw_only=True)
class GroupDetails(_Group):
    """A send port group with the states of its members."""

    members: Sequence[MemberListing]


def list_groups(connection: Connection, *, application: str | None = None) -> list[GroupListing]:
    """Return every send port group, or those of one application, sorted by name."""
    return [
        extend(_describe(group), GroupListing, members=[member.port_name for member in group.members])
        for group in read_send_port_groups(connection)
        if application in (None, group.application)
    ]


def get_group_details(connection: Connection, name: str) -> GroupDetails:
    """Return a send port group with its members. Raise NotFound if there is none with this name."""
    group = _get_group(connection, name)
    members = [
        MemberListing(
            member=member.port_name,
            state=member.port_state,
            through_the_group=group.get_disposition(member),
            subscription_id=member.subscription_id,
        )
        for member in group.members
    ]
    return extend(_describe(group), GroupDetails, members=members)


def _describe(group: SendPortGroup) -> _Group:
    return _Group(
        name=group.name,
        state=group.state,
        application=group.application,
        filter=group.filter,
        description=group.definition["description"],
        group_id=group.group_id,
    )


def _get_group(connection: Connection, name: str) -> SendPortGroup:
    return find_named({group.name: group for group in read_send_port_groups(connection)}, name, "send port group")


def _check_start(_: Connection, group: SendPortGroup) -> None:
    if not any(member.is_enlisted for member in group.members):
        members = ", ".join(member.port_name for member in group.members) or "none"
        raise StateError(
            f"Send port group {group.name!r} cannot start: it has no enlisted member.",
            why=f"Its members are: {members}.",
            hint="Enlist or start one of them first: postroom port start NAME",
        )


_OPERATIONS = StateOperations(
    "Send port group",
    "group",
    _get_group,
    get_id=lambda group: group.group_id,
    enlist=enlist_group,
    unenlist=unenlist_group,
    check_start=_check_start,
)
enlist, start, stop, unenlist = _OPERATIONS.enlist, _OPERATIONS.start, _OPERATIONS.stop, _OPERATIONS.unenlist
