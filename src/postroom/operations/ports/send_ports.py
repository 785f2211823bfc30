"""List, enlist, start, stop and unenlist send ports (SPT-01 … 08, SPT-12).

Every change takes the routing lock exclusively, so no concurrent publish can route by the old state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from postroom.errors import NotFound, StateError, suggest_names
from postroom.messagebox.circuits import OpenCircuit, read_open_circuits
from postroom.messagebox.configuration.endpoints import SendPort, read_send_ports
from postroom.messagebox.configuration.hosts import get_host
from postroom.messagebox.configuration.send_port_groups import read_send_port_groups
from postroom.messagebox.connection import Connection, operator_transaction, read_value
from postroom.messagebox.coordination.notifications import WakeUp
from postroom.messagebox.statements import statement
from postroom.operations.describe import describe_value
from postroom.operations.ports.enlistment import enlist_port, unenlist_port
from postroom.operations.ports.states import StateOperations
from postroom.pipelines import Send


@dataclass(frozen=True, kw_only=True)
class PortListing:
    """A send port with the number of its instances in the queues."""

    port: SendPort
    application: str
    host: str
    waiting: int
    retrying: int
    """Instances that wait for their next attempt."""
    scheduled: int
    """Instances that wait for a service window."""
    next_attempt_at: datetime | None
    """When the first of the waiting instances is due."""
    suspended: int
    circuit: OpenCircuit | None = None
    """The circuit breaker, if it is open."""
    groups: tuple[str, ...] = ()
    """The send port groups that the port is a member of."""


def list_ports(connection: Connection, *, application: str | None = None) -> list[PortListing]:
    """Return every send port, or those of one application, sorted by name."""
    ports = {port.port_id: port for port in read_send_ports(connection)}
    groups = read_send_port_groups(connection)
    circuits = read_open_circuits(connection)
    rows = connection.execute(statement("queries/list_send_ports"), {"application": application})
    return [
        PortListing(
            port=ports[port_id],
            application=owner,
            host=host,
            waiting=waiting,
            retrying=retrying,
            scheduled=scheduled,
            next_attempt_at=next_attempt_at,
            suspended=suspended,
            circuit=circuits.get(port_id),
            groups=tuple(group.name for group in groups if port_id in {member.port_id for member in group.members}),
        )
        for port_id, owner, host, waiting, retrying, scheduled, next_attempt_at, suspended in rows
        if port_id in ports
    ]


def describe_maps(stored: Mapping[str, Any]) -> list[str]:
    """Return a description of each map of a port: source type, target type, and the mapper."""
    return [describe_value(map_definition) for map_definition in stored.get("maps", ())]


def describe_pipeline(stored: Mapping[str, Any]) -> list[str]:
    """Return a description of each stage of a send pipeline that has components."""
    return [
        f"{stage}: {describe_value(components)}"
        for stage, name in Send.list_stages()
        if (components := stored.get(name))
    ]


@dataclass(frozen=True, kw_only=True)
class Retried:
    """The messages of a send port that were made due. ``is_probed`` is True if its circuit breaker is open: one of the
    messages that it has paused is sent now."""

    name: str
    retried: int
    is_probed: bool


def retry(connection: Connection, name: str) -> Retried:
    """Let the host attempt the messages now that wait for their next attempt, for example after the receiver was fixed.
    Each attempt counts."""

    def work(connection: Connection) -> tuple[Retried, str]:
        port = get_send_port(connection, name)
        is_probed = port.port_id in read_open_circuits(connection, ports=[port.port_id])
        count = int(read_value(connection, "SELECT retry_now(%s)", port.port_id))
        done = Retried(name=port.name, retried=count, is_probed=is_probed)
        return done, get_host(connection, port.host_id).name

    done, host = operator_transaction(connection, work)
    WakeUp(connection).send([host])
    return done


def get_send_port(connection: Connection, name: str) -> SendPort:
    """Return the send port with this name. Raise NotFound, which suggests names, if there is none."""
    ports = read_send_ports(connection)
    for port in ports:
        if port.name == name:
            return port
    raise NotFound(
        f"There is no send port {name!r}.",
        hint=suggest_names(
            name, (port.name for port in ports), "The send ports are", none="none; run postroom apply first"
        ),
    )


def _unenlist(connection: Connection, port: SendPort) -> SendPort:
    for group in read_send_port_groups(connection, member=port.port_id):
        if group.is_enlisted and [member.port_id for member in group.members if member.is_enlisted] == [port.port_id]:
            raise StateError(
                f"Port {port.name!r} cannot unenlist: it is the last enlisted member of the group {group.name!r}.",
                why=f"The group is {group.state.name.lower()} and would have no enlisted member left.",
                hint=f"Unenlist the group first: postroom group unenlist {group.name!r}",
            )
    return unenlist_port(connection, port)


_OPERATIONS = StateOperations(
    "Port", "port", get_send_port, get_id=lambda port: port.port_id, enlist=enlist_port, unenlist=_unenlist
)
enlist, start, stop, unenlist = _OPERATIONS.enlist, _OPERATIONS.start, _OPERATIONS.stop, _OPERATIONS.unenlist
