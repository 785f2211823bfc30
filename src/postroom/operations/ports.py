"""Send ports: list, enlist, start, stop, unenlist (SPT-01 … 08).

    bound ──enlist──► stopped ──start──► started          start on a bound port enlists it first
      ▲                  │  ▲               │             unenlist on a started port stops it first
      └────unenlist──────┘  └─────stop──────┘

Every change takes the routing lock exclusively: no publish under way can leave a message behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from postroom.agent.wake_up import WakeUp
from postroom.errors import NotFound, StateError
from postroom.messagebox.configuration import PortState, SendPort, send_ports
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.statements import statement
from postroom.operations.enlistment import enlist_port, host_of, start_port, stop_port, unenlist_port


@dataclass(frozen=True, kw_only=True)
class PortChange:
    """What an operation on a port did."""

    name: str
    before: PortState
    after: PortState
    resumed: int = 0


@dataclass(frozen=True, kw_only=True)
class PortListing:
    """A send port and what stands in the queues for it."""

    port: SendPort
    application: str
    host: str
    waiting: int
    retrying: int
    suspended: int


def list_ports(connection: Connection, *, application: str | None = None) -> list[PortListing]:
    """Every send port, by name."""
    ports = {port.port_id: port for port in send_ports(connection)}
    rows = connection.execute(statement("queries/list_send_ports"), {"application": application})
    return [
        PortListing(
            port=ports[port_id],
            application=owner,
            host=host,
            waiting=waiting,
            retrying=retrying,
            suspended=suspended,
        )
        for port_id, owner, host, waiting, retrying, suspended in rows
        if port_id in ports
    ]


def enlist(connection: Connection, name: str) -> PortChange:
    """Bound becomes stopped: the port has a subscription, whose matches are suspended until it is started."""
    return _change(connection, name, "enlist", {PortState.BOUND: _enlist})


def start(connection: Connection, name: str) -> PortChange:
    """The port's matches are served; what was suspended because it was stopped is taken up again, in order."""
    change = _change(connection, name, "start", {PortState.BOUND: _enlist_and_start, PortState.STOPPED: start_port})
    if change.resumed:
        WakeUp(connection).send([host_of(connection, port_named(connection, name)).name])
    return change


def stop(connection: Connection, name: str) -> PortChange:
    """New matches are suspended. What is in the work queue already is still delivered."""
    return _change(connection, name, "stop", {PortState.STARTED: _stop})


def unenlist(connection: Connection, name: str) -> PortChange:
    """The subscription goes; instances that exist stay, and can be resumed or terminated."""
    return _change(connection, name, "unenlist", {PortState.STOPPED: _unenlist, PortState.STARTED: _unenlist})


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


_Step = Callable[[Connection, SendPort], tuple[SendPort, int]]

_FROM = {
    PortState.BOUND: ("enlist", "start"),
    PortState.STOPPED: ("start", "unenlist"),
    PortState.STARTED: ("stop", "unenlist"),
}


def _change(connection: Connection, name: str, operation: str, allowed: dict[PortState, _Step]) -> PortChange:
    def work(connection: Connection) -> PortChange:
        connection.execute("SELECT change_routing()")
        port = port_named(connection, name)
        if port.state not in allowed:
            state = port.state.name.lower()
            hint = ", ".join(f"'{other}'" for other in _FROM[port.state])
            raise StateError(f"Port {name!r} is {state}; it cannot {operation}.", hint=f"What it can do now: {hint}.")
        after, resumed = allowed[port.state](connection, port)
        return PortChange(name=port.name, before=port.state, after=after.state, resumed=resumed)

    return transaction(connection, work)


def _enlist(connection: Connection, port: SendPort) -> tuple[SendPort, int]:
    return enlist_port(connection, port), 0


def _enlist_and_start(connection: Connection, port: SendPort) -> tuple[SendPort, int]:
    return start_port(connection, enlist_port(connection, port))


def _stop(connection: Connection, port: SendPort) -> tuple[SendPort, int]:
    return stop_port(connection, port), 0


def _unenlist(connection: Connection, port: SendPort) -> tuple[SendPort, int]:
    return unenlist_port(connection, port), 0
