"""List, enlist, start, stop and unenlist send port groups (SPT-11 … 13).

A group has the same states as a send port, independent of its members. A message that comes through a group is
delivered while group and member are started. It is suspended while both are enlisted and one of them is stopped. It is
not routed to the member while either is unenlisted. The application declares the members.
"""

from __future__ import annotations

from postroom.errors import NotFound, StateError, nearest
from postroom.messagebox.configuration.send_port_groups import SendPortGroup, read_send_port_groups
from postroom.messagebox.connection import Connection
from postroom.operations.ports.enlistment import Resumed, enlist_group, start_group, stop_group, unenlist_group
from postroom.operations.ports.states import StateChange, Step, change_state


def list_groups(connection: Connection, *, application: str | None = None) -> list[SendPortGroup]:
    """Return every send port group, or those of one application, sorted by name."""
    return [group for group in read_send_port_groups(connection) if application in (None, group.application)]


def get_group(connection: Connection, name: str) -> SendPortGroup:
    """Return the send port group with this name. Raise NotFound, which suggests names, if there is none."""
    groups = read_send_port_groups(connection)
    for group in groups:
        if group.name == name:
            return group
    raise NotFound(
        f"There is no send port group {name!r}.",
        hint=nearest(name, (group.name for group in groups), "The send port groups are"),
    )


def enlist(connection: Connection, name: str) -> StateChange:
    """Change a bound group to stopped: each enlisted member gets a subscription through the group."""
    return _change(connection, name, "enlist", lambda c, group: (enlist_group(c, group), Resumed()))


def start(connection: Connection, name: str) -> StateChange:
    """Start the group: its started members deliver its messages, those that were suspended first."""
    return _change(connection, name, "start", _start)


def stop(connection: Connection, name: str) -> StateChange:
    """Stop the group: new messages through the group are suspended. Members still get messages by their own filters."""
    return _change(connection, name, "stop", lambda c, group: (stop_group(c, group), Resumed()))


def unenlist(connection: Connection, name: str) -> StateChange:
    """Remove the subscriptions through the group. Existing instances stay and can be resumed or terminated."""
    return change_state(
        connection,
        "Send port group",
        "unenlist",
        name,
        get_group,
        lambda c, group: (unenlist_group(c, group), Resumed()),
    )


def _change(connection: Connection, name: str, operation: str, step: Step[SendPortGroup]) -> StateChange:
    return change_state(connection, "Send port group", operation, name, get_group, step)


def _start(connection: Connection, group: SendPortGroup) -> tuple[SendPortGroup, Resumed]:
    if not any(member.is_enlisted for member in group.members):
        members = ", ".join(member.port_name for member in group.members) or "none"
        raise StateError(
            f"Send port group {group.name!r} cannot start: it has no enlisted member.",
            why=f"Its members are: {members}.",
            hint="Enlist or start one of them first: postroom port start NAME",
        )
    return start_group(connection, group if group.is_enlisted else enlist_group(connection, group))
