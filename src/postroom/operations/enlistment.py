"""The steps between the states of a send port, inside the caller's transaction and under the routing lock.

Each brings the port's subscription and its row to the new state, and says what the port is now.
"""

from __future__ import annotations

from dataclasses import replace

from postroom.filters.expression import Filter, any_of
from postroom.filters.text import parse
from postroom.messagebox.configuration import Host, PortState, SendPort, ServiceClass, hosts
from postroom.messagebox.connection import Connection
from postroom.messagebox.subscriptions import create_subscription
from postroom.operations.properties import deployed_properties
from postroom.properties import Property
from postroom.system_properties import BTS

_STARTED = 1


def subscription_filter(port: SendPort, properties: list[Property]) -> Filter:
    """What an enlisted port subscribes to: messages that name its transport, and what its filter says (SUB-08, 09)."""
    directed = BTS.SPTransportID == str(port.transport_id)
    return any_of([directed, parse(port.filter, properties)]) if port.filter else directed


def enlist_port(connection: Connection, port: SendPort) -> SendPort:
    """A subscription, stopped. A filter whose values do not fit its properties is refused here (PRED-10)."""
    subscription_id = create_subscription(
        connection,
        host_of(connection, port),
        service_class=ServiceClass.MESSAGING_IN_PROCESS,
        service_id=port.port_id,
        service_name=port.name,
        filter=subscription_filter(port, deployed_properties(connection)),
        priority=port.priority,
    )
    return _now(connection, port, PortState.STOPPED, subscription_id)


def start_port(connection: Connection, port: SendPort) -> tuple[SendPort, int]:
    """Matches are served from now on; also says how many messages were waiting for that."""
    connection.execute("SELECT set_subscription_state(%s, %s::smallint)", (port.subscription_id, _STARTED))
    row = connection.execute("SELECT resume_stopped(%s)", (port.port_id,)).fetchone()
    assert row is not None
    return _now(connection, port, PortState.STARTED, port.subscription_id), int(row[0])


def stop_port(connection: Connection, port: SendPort) -> SendPort:
    connection.execute("SELECT set_subscription_state(%s, 2::smallint)", (port.subscription_id,))
    return _now(connection, port, PortState.STOPPED, port.subscription_id)


def unenlist_port(connection: Connection, port: SendPort) -> SendPort:
    connection.execute("SELECT remove_subscription(%s)", (port.subscription_id,))
    return _now(connection, port, PortState.BOUND, None)


def subscribe_again(connection: Connection, port: SendPort) -> SendPort:
    """Another subscription in place of the present one, in the same state: the filter, priority or host is another.

    What is queued or suspended for the port stays where it is (FLT-10)."""
    if port.state is PortState.BOUND:
        return port
    again = enlist_port(connection, unenlist_port(connection, port))
    if port.state is PortState.STARTED:
        again, _ = start_port(connection, again)
    return again


def host_of(connection: Connection, port: SendPort) -> Host:
    return next(host for host in hosts(connection) if host.host_id == port.host_id)


def _now(connection: Connection, port: SendPort, state: PortState, subscription_id: int | None) -> SendPort:
    connection.execute(
        "UPDATE send_ports SET state = %s, subscription_id = %s WHERE id = %s", (state, subscription_id, port.port_id)
    )
    return replace(port, state=state, subscription_id=subscription_id)
