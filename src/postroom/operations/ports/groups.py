"""Send port groups: list, enlist, start, stop, unenlist (SPT-11 … 13).

The states are those of a send port, and a group goes through them alone: its members keep theirs. What comes through a
group is delivered while group and member are started, suspended while both are enlisted and one is stopped, and not
theirs while either is unenlisted. Who is a member is said by the application, and changes when that is applied.
"""

from __future__ import annotations

from collections.abc import Callable

from postroom.agent.wake_up import WakeUp
from postroom.errors import NotFound, StateError, nearest
from postroom.messagebox.configuration import SendPortGroup, hosts, send_port_groups
from postroom.messagebox.connection import Connection, transaction
from postroom.operations.ports.enlistment import enlist_group, start_group, stop_group, unenlist_group
from postroom.operations.ports.states import StateChange, check_transition


def list_groups(connection: Connection, *, application: str | None = None) -> list[SendPortGroup]:
    """Every send port group, by name."""
    return [one for one in send_port_groups(connection) if application in (None, one.application)]


def get_group(connection: Connection, name: str) -> SendPortGroup:
    """The send port group of that name, or NotFound that lists those there are."""
    groups = send_port_groups(connection)
    for group in groups:
        if group.name == name:
            return group
    raise NotFound(
        f"There is no send port group {name!r}.",
        hint=nearest(name, (group.name for group in groups), "The send port groups are"),
    )


def enlist(connection: Connection, name: str) -> StateChange:
    """Bound becomes stopped: members that are enlisted have a subscription through the group."""
    return _change(connection, name, "enlist", lambda c, group: (enlist_group(c, group), {}))


def start(connection: Connection, name: str) -> StateChange:
    """What comes through the group is served by the members that are started, beginning with what waited for that."""
    return _change(connection, name, "start", _start)


def stop(connection: Connection, name: str) -> StateChange:
    """What comes through the group is suspended from now on; its members go on with what they get by themselves."""
    return _change(connection, name, "stop", lambda c, group: (stop_group(c, group), {}))


def unenlist(connection: Connection, name: str) -> StateChange:
    """The subscriptions through the group go; instances that exist stay, and can be resumed or terminated."""
    return _change(connection, name, "unenlist", lambda c, group: (unenlist_group(c, group), {}))


#: Gives the group as it is afterwards, and how many messages were resumed on which host.
_Step = Callable[[Connection, SendPortGroup], tuple[SendPortGroup, dict[int, int]]]


def _change(connection: Connection, name: str, operation: str, step: _Step) -> StateChange:
    resumed: dict[int, int] = {}

    def work(connection: Connection) -> StateChange:
        nonlocal resumed
        connection.execute("SELECT change_routing()")
        group = get_group(connection, name)
        check_transition(operation, f"Send port group {name!r}", group.state)
        after, resumed = step(connection, group)
        return StateChange(name=name, before=group.state, after=after.state, resumed=sum(resumed.values()))

    change = transaction(connection, work)
    if resumed:
        WakeUp(connection).send([host.name for host in hosts(connection) if host.host_id in resumed])
    return change


def _start(connection: Connection, group: SendPortGroup) -> tuple[SendPortGroup, dict[int, int]]:
    if not any(member.is_enlisted for member in group.members):
        members = ", ".join(member.port_name for member in group.members) or "none"
        raise StateError(
            f"Send port group {group.name!r} cannot start: none of its members is enlisted.",
            why=f"Its members are: {members}.",
            hint="Enlist or start one of them first: postroom port start NAME",
        )
    return start_group(connection, group if group.is_enlisted else enlist_group(connection, group))
