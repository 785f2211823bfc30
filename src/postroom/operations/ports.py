"""Send ports: enlist, start, stop, unenlist (SPT-01 … 08).

    bound ──enlist──► stopped ──start──► started          start on a bound port enlists it first
      ▲                  │  ▲               │             unenlist on a started port stops it first
      └────unenlist──────┘  └─────stop──────┘

Every change takes the routing lock exclusively: no publish under way can leave a message behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroom.errors import NotFound, StateError
from postroom.filters.expression import Filter, any_of
from postroom.filters.text import parse
from postroom.messagebox.configuration import Host, PortState, SendPort, ServiceClass, hosts, send_ports
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.subscriptions import create_subscription
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import ValueType


@dataclass(frozen=True, kw_only=True)
class PortChange:
    """What an operation on a port did."""

    name: str
    before: PortState
    after: PortState
    resumed: int = 0


def enlist(connection: Connection, name: str) -> PortChange:
    """Bound becomes stopped: the port has a subscription, whose matches are suspended until it is started."""
    return _change(connection, name, "enlist", {PortState.BOUND: _enlist})


def start(connection: Connection, name: str) -> PortChange:
    """The port's matches are served; what was suspended because it was stopped is taken up again, in order."""
    return _change(connection, name, "start", {PortState.BOUND: _enlist_and_start, PortState.STOPPED: _start})


def stop(connection: Connection, name: str) -> PortChange:
    """New matches are suspended. What is in the work queue already is still delivered."""
    return _change(connection, name, "stop", {PortState.STARTED: _stop})


def unenlist(connection: Connection, name: str) -> PortChange:
    """The subscription goes; instances that exist stay, and can be resumed or terminated."""
    return _change(connection, name, "unenlist", {PortState.STOPPED: _unenlist, PortState.STARTED: _unenlist})


def subscription_filter(port: SendPort, properties: list[Property]) -> Filter:
    """What an enlisted port subscribes to: messages that name its transport, and what its filter says (SUB-08, 09)."""
    directed = BTS.SPTransportID == str(port.transport_id)
    return any_of([directed, parse(port.filter, properties)]) if port.filter else directed


def deployed_properties(connection: Connection) -> list[Property]:
    """Every property that filters may name."""
    rows = connection.execute("SELECT key, value_type FROM properties ORDER BY key")
    return [Property.from_key(key, ValueType(value_type)) for key, value_type in rows]


def _change(
    connection: Connection,
    name: str,
    operation: str,
    allowed: dict[PortState, Callable[[Connection, SendPort], tuple[PortState, int]]],
) -> PortChange:
    def work(connection: Connection) -> PortChange:
        connection.execute("SELECT change_routing()")
        port = port_named(connection, name)
        if port.state not in allowed:
            state = port.state.name.lower()
            hint = ", ".join(f"'{other}'" for other in _FROM[port.state])
            raise StateError(f"Port {name!r} is {state}; it cannot {operation}.", hint=f"What it can do now: {hint}.")
        after, resumed = allowed[port.state](connection, port)
        connection.execute("UPDATE send_ports SET state = %s WHERE id = %s", (after, port.port_id))
        return PortChange(name=port.name, before=port.state, after=after, resumed=resumed)

    return transaction(connection, work)


_FROM = {
    PortState.BOUND: ("enlist", "start"),
    PortState.STOPPED: ("start", "unenlist"),
    PortState.STARTED: ("stop", "unenlist"),
}


def port_named(connection: Connection, name: str) -> SendPort:
    """The send port of that name, or NotFound that lists those there are."""
    ports = send_ports(connection)
    for port in ports:
        if port.name == name:
            return port
    raise NotFound(
        f"There is no send port {name!r}.",
        hint=f"The send ports are: {', '.join(port.name for port in ports) or 'none; run postroom apply first'}.",
    )


def _enlist(connection: Connection, port: SendPort) -> tuple[PortState, int]:
    subscription_id = create_subscription(
        connection,
        _host_of(connection, port),
        service_class=ServiceClass.MESSAGING_IN_PROCESS,
        service_id=port.port_id,
        service_name=port.name,
        filter=subscription_filter(port, deployed_properties(connection)),
        priority=port.priority,
    )
    connection.execute("UPDATE send_ports SET subscription_id = %s WHERE id = %s", (subscription_id, port.port_id))
    return PortState.STOPPED, 0


def _enlist_and_start(connection: Connection, port: SendPort) -> tuple[PortState, int]:
    _enlist(connection, port)
    return _start(connection, port_named(connection, port.name))


def _start(connection: Connection, port: SendPort) -> tuple[PortState, int]:
    connection.execute("SELECT set_subscription_state(%s, 1::smallint)", (port.subscription_id,))
    row = connection.execute("SELECT resume_stopped(%s)", (port.port_id,)).fetchone()
    assert row is not None
    return PortState.STARTED, int(row[0])


def _stop(connection: Connection, port: SendPort) -> tuple[PortState, int]:
    connection.execute("SELECT set_subscription_state(%s, 2::smallint)", (port.subscription_id,))
    return PortState.STOPPED, 0


def _unenlist(connection: Connection, port: SendPort) -> tuple[PortState, int]:
    connection.execute("SELECT remove_subscription(%s)", (port.subscription_id,))
    connection.execute("UPDATE send_ports SET subscription_id = NULL WHERE id = %s", (port.port_id,))
    return PortState.BOUND, 0


def _host_of(connection: Connection, port: SendPort) -> Host:
    return next(host for host in hosts(connection) if host.host_id == port.host_id)
