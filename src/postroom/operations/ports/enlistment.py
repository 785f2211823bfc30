"""Change the state of a send port or a send port group, in the caller's transaction and under the routing lock.

Each function updates the rows and the subscriptions, and returns the port or the group in its new state. An enlisted
port has one subscription of its own, and one through each of its groups that is enlisted (SUB-15). The subscription
through a group is started while both port and group are started (SPT-13). No function changes the state of both
(SPT-11).
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from postroom.filters.expression import Filter, any_of
from postroom.filters.text import parse
from postroom.messagebox.configuration.hosts import ServiceClass, get_host
from postroom.messagebox.configuration.properties import read_deployed_properties
from postroom.messagebox.configuration.send_port_groups import (
    SendPortGroup,
    delete_member,
    get_send_port_group,
    insert_member,
    read_send_port_groups,
    set_group_state,
)
from postroom.messagebox.configuration.services import ServiceState, store_state
from postroom.messagebox.connection import Connection
from postroom.messagebox.service_states import start_service
from postroom.messagebox.subscriptions import (
    ServiceSubscriptions,
    SubscribingService,
    remove_subscriptions,
    start_subscription,
)
from postroom.ports.send_ports import SendPort, read_send_ports
from postroom.properties import Property
from postroom.system_properties import BTS


def build_port_filter(port: SendPort, properties: list[Property]) -> Filter:
    """Return the filter of a port: messages that are directed to its transport or match its own filter (SUB-08, 09).

    A dynamic port has no transport of its own, so messages are directed to the port itself (SUB-10)."""
    directed = _match_id(BTS.SPID, port.port_id) if port.is_dynamic else _match_id(BTS.SPTransportID, port.transport_id)
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
            _subscribe_member(connection, group, port)
    store_state(connection, port.port_id, ServiceState.STOPPED)
    return replace(port, state=ServiceState.STOPPED, subscription_id=subscription_id)


def start_port(connection: Connection, port: SendPort) -> SendPort:
    """Start the port's subscriptions, and resume the messages that were suspended because it was stopped."""
    start_service(connection, port.port_id)
    return replace(port, state=ServiceState.STARTED)


def unenlist_port(connection: Connection, port: SendPort) -> SendPort:
    """Remove the port's subscriptions, also those through groups."""
    remove_subscriptions(connection, port.port_id)
    store_state(connection, port.port_id, ServiceState.BOUND)
    return replace(port, state=ServiceState.BOUND, subscription_id=None)


def resubscribe_port(connection: Connection, port: SendPort) -> SendPort:
    """Replace the subscriptions after a change of filter, priority or host. The state stays the same.

    Instances that are queued or suspended stay where they are (FLT-10)."""
    if port.state is ServiceState.BOUND:
        return port
    enlisted = enlist_port(connection, unenlist_port(connection, port))
    return start_port(connection, enlisted) if port.state is ServiceState.STARTED else enlisted


# -- groups --------------------------------------------------------------------------------------------------------


def enlist_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Create a stopped subscription for each enlisted member (SPT-11)."""
    for port in read_send_ports(connection, ids=[member.port_id for member in group.members]):
        if port.state is not ServiceState.BOUND:
            _subscribe_member(connection, group, port)
    return set_group_state(connection, group.group_id, ServiceState.STOPPED)


def start_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Start the subscriptions of the started members, and resume the messages that were suspended because the group
    was stopped."""
    start_service(connection, group.group_id)
    return get_send_port_group(connection, group.group_id)


def unenlist_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Remove the subscriptions of the members through the group."""
    remove_subscriptions(connection, group_id=group.group_id)
    return set_group_state(connection, group.group_id, ServiceState.BOUND)


def resubscribe_group(connection: Connection, group: SendPortGroup) -> SendPortGroup:
    """Replace the members' subscriptions after a change of the group's filter. The state stays the same."""
    if not group.is_enlisted:
        return group
    enlisted = enlist_group(connection, unenlist_group(connection, group))
    return start_group(connection, enlisted) if group.state is ServiceState.STARTED else enlisted


def add_member(connection: Connection, group: SendPortGroup, port: SendPort) -> SendPortGroup:
    """Add a member. Create its subscription at once if both port and group are enlisted."""
    insert_member(connection, group.group_id, port.port_id)
    if group.is_enlisted and port.state is not ServiceState.BOUND:
        _subscribe_member(connection, group, port)
    return get_send_port_group(connection, group.group_id)


def remove_member(connection: Connection, group: SendPortGroup, port_id: uuid.UUID) -> None:
    """Remove a member. Its instances that came through the group stay."""
    remove_subscriptions(connection, port_id, group_id=group.group_id)
    delete_member(connection, group.group_id, port_id)


def _subscribe_member(connection: Connection, group: SendPortGroup, port: SendPort) -> None:
    """Create the subscription of an enlisted port through an enlisted group. Start it if both are started."""
    filter = build_group_filter(group, read_deployed_properties(connection))
    subscription_id = _subscribe(connection, port, filter, group=group)
    if group.state is ServiceState.STARTED and port.state is ServiceState.STARTED:
        start_subscription(connection, subscription_id)


# -- both ----------------------------------------------------------------------------------------------------------


def _subscribe(connection: Connection, port: SendPort, filter: Filter, *, group: SendPortGroup | None = None) -> int:
    service_class = ServiceClass.SPARK_SINKS if port.is_sink else ServiceClass.MESSAGING_IN_PROCESS
    return ServiceSubscriptions(get_host(connection, port.host_id), service_class).activate(
        connection,
        SubscribingService(service_id=port.port_id, name=port.name),
        filter,
        priority=port.settings.priority,
        request_response=port.is_two_way,
        ordered=port.settings.ordered,
        send_port_group=group,
    )
