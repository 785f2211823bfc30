"""The steps between the states of a send port or a send port group, inside the caller's transaction and under the
routing lock.

Each brings rows and subscriptions to the new state, and says what the port or the group is now. A port has one
subscription of its own while it is enlisted, and one more through each of its groups that is enlisted (SUB-15); the
latter is started while both are (SPT-13). No step changes the state of both (SPT-11).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import replace

from postroom.filters.expression import Filter, any_of
from postroom.filters.text import parse
from postroom.messagebox.configuration import (
    Host,
    PortState,
    SendPort,
    SendPortGroup,
    ServiceClass,
    hosts,
    send_port_groups,
    send_ports,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.subscriptions import create_subscription
from postroom.operations.properties import read_deployed_properties
from postroom.properties import Property
from postroom.system_properties import BTS

_STARTED, _STOPPED = 1, 2


def build_port_filter(port: SendPort, properties: list[Property]) -> Filter:
    """What an enlisted port subscribes to: messages that name its transport, and what its filter says (SUB-08, 09).

    A dynamic port has no transport of its own, and is named itself (SUB-10)."""
    directed = (
        _names(BTS.SPID, port.port_id) if port.adapter_type.is_dynamic else _names(BTS.SPTransportID, port.transport_id)
    )
    return _directed_or(directed, port.filter, properties)


def build_group_filter(group: SendPortGroup, properties: list[Property]) -> Filter:
    """What the members of an enlisted group subscribe to: messages that name it, and what its filter says (FLT-04)."""
    return _directed_or(_names(BTS.SPGroupID, group.group_id), group.filter, properties)


def _names(prop: Property, id: uuid.UUID) -> Filter:
    return prop == str(id)


def _directed_or(directed: Filter, text: str | None, properties: list[Property]) -> Filter:
    return any_of([directed, parse(text, properties)]) if text else directed


# -- ports ---------------------------------------------------------------------------------------------------------


def enlist_port(connection: Connection, port: SendPort) -> SendPort:
    """Its subscriptions, stopped. A filter whose values do not fit its properties is refused here (PRED-10)."""
    subscription_id = _subscribe(connection, port, build_port_filter(port, read_deployed_properties(connection)))
    for group in send_port_groups(connection, member=port.port_id):
        if group.is_enlisted:
            subscribe_member(connection, group, port)
    return _port_now(connection, port, PortState.STOPPED, subscription_id)


def start_port(connection: Connection, port: SendPort) -> tuple[SendPort, int]:
    """Matches are served from now on; also says how many messages were waiting for that."""
    _set_state(connection, [port.subscription_id], _STARTED)
    groups = send_port_groups(connection, member=port.port_id)
    started = [group for group in groups if group.state is PortState.STARTED]
    _set_state(connection, _through(started, port), _STARTED)
    now = _port_now(connection, port, PortState.STARTED, port.subscription_id)
    row = connection.execute("SELECT resume_stopped(%s)", (port.port_id,)).fetchone()
    assert row is not None
    return now, int(row[0])


def stop_port(connection: Connection, port: SendPort) -> SendPort:
    through = _through(send_port_groups(connection, member=port.port_id), port)
    _set_state(connection, [port.subscription_id, *through], _STOPPED)
    return _port_now(connection, port, PortState.STOPPED, port.subscription_id)


def unenlist_port(connection: Connection, port: SendPort) -> SendPort:
    connection.execute("SELECT remove_subscription(%s)", (port.subscription_id,))
    for group in send_port_groups(connection, member=port.port_id):
        unsubscribe_member(connection, group, port.port_id)
    return _port_now(connection, port, PortState.BOUND, None)


def resubscribe_port(connection: Connection, port: SendPort) -> SendPort:
    """Other subscriptions in place of the present ones, in the same state: the filter, priority or host is another.

    What is queued or suspended for the port stays where it is (FLT-10)."""
    if port.state is PortState.BOUND:
        return port
    again = enlist_port(connection, unenlist_port(connection, port))
    if port.state is PortState.STARTED:
        again, _ = start_port(connection, again)
    return again


def get_port_host(connection: Connection, port: SendPort) -> Host:
    return next(host for host in hosts(connection) if host.host_id == port.host_id)


def _port_now(connection: Connection, port: SendPort, state: PortState, subscription_id: int | None) -> SendPort:
    # One at a time: operators may change the state, and nothing else.
    connection.execute("UPDATE send_ports SET state = %s WHERE id = %s", (state, port.port_id))
    if subscription_id != port.subscription_id:
        connection.execute("UPDATE send_ports SET subscription_id = %s WHERE id = %s", (subscription_id, port.port_id))
    return replace(port, state=state, subscription_id=subscription_id)


# -- groups --------------------------------------------------------------------------------------------------------


def enlist_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """A stopped subscription for each member that is enlisted; none if there is no such member (SPT-11)."""
    for port in _member_ports(connection, group):
        if port.state is not PortState.BOUND:
            subscribe_member(connection, group, port)
    return _group_now(connection, group, PortState.STOPPED)


def start_group(connection: Connection, group: SendPortGroup) -> tuple[SendPortGroup, dict[int, int]]:
    """Matches are served by the members that are started; also says how many messages were waiting for that, by the id
    of their host."""
    started = [one.subscription_id for one in group.members if one.port_state is PortState.STARTED]
    _set_state(connection, started, _STARTED)
    now = _group_now(connection, group, PortState.STARTED)
    resumed = connection.execute("SELECT * FROM resume_stopped_group(%s)", (group.group_id,)).fetchall()
    return now, dict(resumed)


def stop_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    _set_state(connection, [one.subscription_id for one in group.members], _STOPPED)
    return _group_now(connection, group, PortState.STOPPED)


def unenlist_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    for member in group.members:
        unsubscribe_member(connection, group, member.port_id)
    return _group_now(connection, group, PortState.BOUND)


def resubscribe_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Other subscriptions for the members in place of the present ones: the group's filter is another."""
    if not group.is_enlisted:
        return group
    again = enlist_group(connection, unenlist_group(connection, group))
    if group.state is PortState.STARTED:
        again, _ = start_group(connection, again)
    return again


def add_member(connection: Connection, group: SendPortGroup, port: SendPort) -> SendPortGroup:
    """One more member, which has its subscription at once if both are enlisted."""
    connection.execute(
        "INSERT INTO send_port_group_members (group_id, port_id) VALUES (%s, %s)", (group.group_id, port.port_id)
    )
    if group.is_enlisted and port.state is not PortState.BOUND:
        subscribe_member(connection, group, port)
    return _read_group(connection, group.group_id)


def remove_member(connection: Connection, group: SendPortGroup, port_id: uuid.UUID) -> None:
    """One member fewer. What is queued or suspended for it on its way through the group stays."""
    unsubscribe_member(connection, group, port_id)
    connection.execute(
        "DELETE FROM send_port_group_members WHERE group_id = %s AND port_id = %s", (group.group_id, port_id)
    )


def subscribe_member(connection: Connection, group: SendPortGroup, port: SendPort) -> None:
    """The subscription of an enlisted port through an enlisted group, started if both are."""
    filter = build_group_filter(group, read_deployed_properties(connection))
    subscription_id = _subscribe(connection, port, filter, group=group)
    if group.state is PortState.STARTED and port.state is PortState.STARTED:
        _set_state(connection, [subscription_id], _STARTED)
    connection.execute(
        "UPDATE send_port_group_members SET subscription_id = %s WHERE group_id = %s AND port_id = %s",
        (subscription_id, group.group_id, port.port_id),
    )


def unsubscribe_member(connection: Connection, group: SendPortGroup, port_id: uuid.UUID) -> None:
    """The subscription of a port through a group goes, if there is one."""
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
    return send_ports(connection, ids=[member.port_id for member in group.members])


def _group_now(connection: Connection, group: SendPortGroup, state: PortState) -> SendPortGroup:
    connection.execute("UPDATE send_port_groups SET state = %s WHERE id = %s", (state, group.group_id))
    return _read_group(connection, group.group_id)


def _read_group(connection: Connection, group_id: uuid.UUID) -> SendPortGroup:
    return next(one for one in send_port_groups(connection) if one.group_id == group_id)


# -- both ----------------------------------------------------------------------------------------------------------


def _subscribe(connection: Connection, port: SendPort, filter: Filter, *, group: SendPortGroup | None = None) -> int:
    return create_subscription(
        connection,
        get_port_host(connection, port),
        service_class=ServiceClass.SPARK_SINKS if port.adapter_type.is_sink else ServiceClass.MESSAGING_IN_PROCESS,
        service_id=port.port_id,
        service_name=port.name,
        filter=filter,
        priority=port.priority,
        group=group,
    )


def _through(groups: Iterable[SendPortGroup], port: SendPort) -> list[int | None]:
    """The subscriptions that the port has through these groups."""
    return [one.subscription_id for group in groups for one in group.members if one.port_id == port.port_id]


def _set_state(connection: Connection, subscription_ids: Iterable[int | None], state: int) -> None:
    for subscription_id in subscription_ids:
        if subscription_id is not None:
            connection.execute("SELECT start_or_stop_subscription(%s, %s::smallint)", (subscription_id, state))
