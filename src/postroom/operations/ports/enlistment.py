"""Change the state of a send port or a send port group, in the caller's transaction and under the routing lock.

Each function updates the rows and the subscriptions, and returns the port or the group in its new state. An enlisted
port has one subscription of its own, and one through each of its groups that is enlisted (SUB-15). The subscription
through a group is started while both port and group are started (SPT-13). No function changes the state of both
(SPT-11).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from postroom.filters.expression import Filter, any_of
from postroom.filters.text import parse
from postroom.messagebox.configuration.endpoints import PortState, SendPort, read_send_ports
from postroom.messagebox.configuration.hosts import ServiceClass, get_host
from postroom.messagebox.configuration.send_port_groups import SendPortGroup, read_send_port_groups
from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.subscriptions import create_subscription
from postroom.operations.instances.bulk_operations import start_resuming
from postroom.operations.properties import read_deployed_properties
from postroom.properties import Property
from postroom.system_properties import BTS

_STARTED, _STOPPED = 1, 2
#: The messages that a start resumes itself. Publishers wait for it, so the others are left to an operation.
MAX_RESUMED = 1_000


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The messages that a start has resumed under the routing lock, by host id. If there were more, an operation
    resumes them without the lock."""

    hosts: Mapping[int, int] = field(default_factory=dict)
    operation_id: int | None = None

    @property
    def count(self) -> int:
        return sum(self.hosts.values())


def build_port_filter(port: SendPort, properties: list[Property]) -> Filter:
    """Return the filter of a port: messages that are directed to its transport or match its own filter (SUB-08, 09).

    A dynamic port has no transport of its own, so messages are directed to the port itself (SUB-10)."""
    directed = (
        _match_id(BTS.SPID, port.port_id)
        if port.adapter_type.is_dynamic
        else _match_id(BTS.SPTransportID, port.transport_id)
    )
    return _add_filter(directed, port.filter, properties)


def build_group_filter(group: SendPortGroup, properties: list[Property]) -> Filter:
    """Return the filter of the members of a group: messages directed to the group, or matching its filter (FLT-04)."""
    return _add_filter(_match_id(BTS.SPGroupID, group.group_id), group.filter, properties)


def _match_id(prop: Property, id: uuid.UUID) -> Filter:
    return prop == str(id)


def _add_filter(directed: Filter, text: str | None, properties: list[Property]) -> Filter:
    return any_of([directed, parse(text, properties)]) if text else directed


# -- ports ---------------------------------------------------------------------------------------------------------


def enlist_port(connection: Connection, port: SendPort) -> SendPort:
    """Create the port's subscriptions, stopped. Raise if a value in the filter does not fit its property (PRED-10)."""
    subscription_id = _subscribe(connection, port, build_port_filter(port, read_deployed_properties(connection)))
    for group in read_send_port_groups(connection, member=port.port_id):
        if group.is_enlisted:
            subscribe_member(connection, group, port)
    return _store_port_state(connection, port, PortState.STOPPED, subscription_id)


def start_port(connection: Connection, port: SendPort) -> tuple[SendPort, Resumed]:
    """Start the port's subscriptions. Also return the suspended messages that were resumed, and the operation that
    resumes the others."""
    _set_subscription_state(connection, [port.subscription_id], _STARTED)
    groups = read_send_port_groups(connection, member=port.port_id)
    started = [group for group in groups if group.state is PortState.STARTED]
    _set_subscription_state(connection, _list_subscriptions(started, port), _STARTED)
    stored = _store_port_state(connection, port, PortState.STARTED, port.subscription_id)
    return stored, resume_stopped(connection, port.name, service_id=port.port_id, host_id=port.host_id)


def stop_port(connection: Connection, port: SendPort) -> SendPort:
    """Stop the port's subscriptions."""
    through_groups = _list_subscriptions(read_send_port_groups(connection, member=port.port_id), port)
    _set_subscription_state(connection, [port.subscription_id, *through_groups], _STOPPED)
    return _store_port_state(connection, port, PortState.STOPPED, port.subscription_id)


def unenlist_port(connection: Connection, port: SendPort) -> SendPort:
    """Remove the port's subscriptions."""
    connection.execute("SELECT remove_subscription(%s)", (port.subscription_id,))
    for group in read_send_port_groups(connection, member=port.port_id):
        unsubscribe_member(connection, group, port.port_id)
    return _store_port_state(connection, port, PortState.BOUND, None)


def resubscribe_port(connection: Connection, port: SendPort) -> SendPort:
    """Replace the subscriptions after a change of filter, priority or host. The state stays the same.

    Instances that are queued or suspended stay where they are (FLT-10)."""
    if port.state is PortState.BOUND:
        return port
    enlisted = enlist_port(connection, unenlist_port(connection, port))
    return start_port(connection, enlisted)[0] if port.state is PortState.STARTED else enlisted


def _store_port_state(
    connection: Connection, port: SendPort, state: PortState, subscription_id: int | None
) -> SendPort:
    # Two statements: operators may update only the state.
    connection.execute("UPDATE send_ports SET state = %s WHERE id = %s", (state, port.port_id))
    if subscription_id != port.subscription_id:
        connection.execute("UPDATE send_ports SET subscription_id = %s WHERE id = %s", (subscription_id, port.port_id))
    return replace(port, state=state, subscription_id=subscription_id)


# -- groups --------------------------------------------------------------------------------------------------------


def enlist_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Create a stopped subscription for each enlisted member (SPT-11)."""
    for port in _member_ports(connection, group):
        if port.state is not PortState.BOUND:
            subscribe_member(connection, group, port)
    return _store_group_state(connection, group, PortState.STOPPED)


def start_group(connection: Connection, group: SendPortGroup) -> tuple[SendPortGroup, Resumed]:
    """Start the subscriptions of the started members. Also return the messages that were resumed, as ``start_port``."""
    started = [member.subscription_id for member in group.members if member.port_state is PortState.STARTED]
    _set_subscription_state(connection, started, _STARTED)
    stored = _store_group_state(connection, group, PortState.STARTED)
    rows = connection.execute("SELECT * FROM resume_stopped_group(%s, %s)", (group.group_id, MAX_RESUMED))
    resumed = Resumed(hosts=dict(rows.fetchall()))
    if resumed.count == MAX_RESUMED:
        resumed = replace(resumed, operation_id=start_resuming(connection, group.name, group_id=group.group_id))
    return stored, resumed


def stop_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Stop the subscriptions of the members through the group."""
    _set_subscription_state(connection, [member.subscription_id for member in group.members], _STOPPED)
    return _store_group_state(connection, group, PortState.STOPPED)


def unenlist_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Remove the subscriptions of the members through the group."""
    for member in group.members:
        unsubscribe_member(connection, group, member.port_id)
    return _store_group_state(connection, group, PortState.BOUND)


def resubscribe_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Replace the members' subscriptions after a change of the group's filter. The state stays the same."""
    if not group.is_enlisted:
        return group
    enlisted = enlist_group(connection, unenlist_group(connection, group))
    return start_group(connection, enlisted)[0] if group.state is PortState.STARTED else enlisted


def add_member(connection: Connection, group: SendPortGroup, port: SendPort) -> SendPortGroup:
    """Add a member. Create its subscription at once if both port and group are enlisted."""
    connection.execute(
        "INSERT INTO send_port_group_members (group_id, port_id) VALUES (%s, %s)", (group.group_id, port.port_id)
    )
    if group.is_enlisted and port.state is not PortState.BOUND:
        subscribe_member(connection, group, port)
    return _read_group(connection, group.group_id)


def remove_member(connection: Connection, group: SendPortGroup, port_id: uuid.UUID) -> None:
    """Remove a member. Its instances that came through the group stay."""
    unsubscribe_member(connection, group, port_id)
    connection.execute(
        "DELETE FROM send_port_group_members WHERE group_id = %s AND port_id = %s", (group.group_id, port_id)
    )


def subscribe_member(connection: Connection, group: SendPortGroup, port: SendPort) -> None:
    """Create the subscription of an enlisted port through an enlisted group. Start it if both are started."""
    filter = build_group_filter(group, read_deployed_properties(connection))
    subscription_id = _subscribe(connection, port, filter, group=group)
    if group.state is PortState.STARTED and port.state is PortState.STARTED:
        _set_subscription_state(connection, [subscription_id], _STARTED)
    connection.execute(
        "UPDATE send_port_group_members SET subscription_id = %s WHERE group_id = %s AND port_id = %s",
        (subscription_id, group.group_id, port.port_id),
    )


def unsubscribe_member(connection: Connection, group: SendPortGroup, port_id: uuid.UUID) -> None:
    """Remove the subscription of a port through a group, if there is one."""
    connection.execute(
        "SELECT remove_subscription(subscription_id) FROM send_port_group_members"
        " WHERE group_id = %s AND port_id = %s AND subscription_id IS NOT NULL",
        (group.group_id, port_id),
    )
    connection.execute(
        "UPDATE send_port_group_members SET subscription_id = NULL WHERE group_id = %s AND port_id = %s",
        (group.group_id, port_id),
    )


def _member_ports(connection: Connection, group: SendPortGroup) -> list[SendPort]:
    return read_send_ports(connection, ids=[member.port_id for member in group.members])


def _store_group_state(connection: Connection, group: SendPortGroup, state: PortState) -> SendPortGroup:
    connection.execute("UPDATE send_port_groups SET state = %s WHERE id = %s", (state, group.group_id))
    return _read_group(connection, group.group_id)


def _read_group(connection: Connection, group_id: uuid.UUID) -> SendPortGroup:
    return next(group for group in read_send_port_groups(connection) if group.group_id == group_id)


# -- both ----------------------------------------------------------------------------------------------------------


def _subscribe(connection: Connection, port: SendPort, filter: Filter, *, group: SendPortGroup | None = None) -> int:
    return create_subscription(
        connection,
        get_host(connection, port.host_id),
        service_class=ServiceClass.SPARK_SINKS if port.adapter_type.is_sink else ServiceClass.MESSAGING_IN_PROCESS,
        service_id=port.port_id,
        service_name=port.name,
        filter=filter,
        priority=port.priority,
        request_response=port.is_two_way,
        ordered=port.ordered,
        group=group,
    )


def resume_stopped(connection: Connection, name: str, *, service_id: uuid.UUID, host_id: int) -> Resumed:
    """Resume the messages that were suspended because a port or an orchestration was stopped. Leave all but the first
    ones to an operation."""
    count = int(read_value(connection, "SELECT resume_stopped(%s, %s)", service_id, MAX_RESUMED))
    resumed = Resumed(hosts={host_id: count} if count else {})
    if count == MAX_RESUMED:
        resumed = replace(resumed, operation_id=start_resuming(connection, name, service_id=service_id))
    return resumed


def _list_subscriptions(groups: Iterable[SendPortGroup], port: SendPort) -> list[int | None]:
    """Return the subscriptions of the port through these groups."""
    members = (member for group in groups for member in group.members)
    return [member.subscription_id for member in members if member.port_id == port.port_id]


def _set_subscription_state(connection: Connection, subscription_ids: Iterable[int | None], state: int) -> None:
    for subscription_id in subscription_ids:
        if subscription_id is not None:
            connection.execute("SELECT start_or_stop_subscription(%s, %s::smallint)", (subscription_id, state))
