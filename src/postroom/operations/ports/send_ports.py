"""List, enlist, start, stop and unenlist send ports (SPT-01 … 08, SPT-12).

Every change takes the routing lock exclusively, so no concurrent publish can route by the old state.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, get_args

from postroom.application import Retry
from postroom.application.backup_transport import TransportSettings
from postroom.errors import NONE_APPLIED, DefinitionError, StateError, find_named
from postroom.messagebox.circuits import read_open_circuits
from postroom.messagebox.configuration.hosts import get_host
from postroom.messagebox.configuration.send_port_groups import read_send_port_groups
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.coordination.notifications import WakeUp
from postroom.messagebox.instances import count_queues_of_ports
from postroom.messagebox.service_states import retry_now
from postroom.operations.describe import describe_value
from postroom.operations.ports.enlistment import enlist_port, unenlist_port
from postroom.operations.ports.states import StateOperations
from postroom.operations.records import FLAT, extend
from postroom.operations.redaction import redact_adapter
from postroom.pipelines import Send
from postroom.ports.send_ports import SendPort, Transport, read_send_ports


@dataclass(frozen=True, kw_only=True)
class PortListing:
    """A send port with the number of its instances in the queues. Secrets of the adapter are hidden."""

    name: str
    state: ServiceState
    application: str
    host: str
    filter: str | None
    adapter: Mapping[str, Any]
    uri: str
    maps: Sequence[str]
    """Source type, target type and mapper of each map."""
    pipeline: Sequence[str]
    """Each stage that has components."""
    receive_pipeline: str | None
    """The pipeline of the responses."""
    settings: Mapping[str, Any] = field(metadata=FLAT)
    """The plain settings of its definition."""
    paused_since: datetime | None
    """When the circuit breaker opened, if it is open."""
    paused_by: str | None
    paused_because: str | None
    next_probe_at: datetime | None
    backup: Mapping[str, Any] | None
    """The backup transport."""
    waiting: int
    retrying: int
    """Instances that wait for their next attempt."""
    scheduled: int
    """Instances that wait for a service window."""
    next_attempt_at: datetime | None
    """When the first of the waiting instances is due."""
    suspended: int
    port_id: uuid.UUID
    transport_id: uuid.UUID
    subscription_id: int | None
    groups: Sequence[str]
    """The send port groups that the port is a member of."""


@dataclass(frozen=True, kw_only=True)
class SinkPortListing(PortListing):
    """A send port that Spark serves."""

    guarantee: str | None
    """The delivery guarantee. None if the login may not read the port's configuration."""


def list_ports(connection: Connection, *, application: str | None = None) -> list[PortListing]:
    """Return every send port, or those of one application, sorted by name."""
    ports = {port.port_id: port for port in read_send_ports(connection)}
    groups = read_send_port_groups(connection)
    circuits = read_open_circuits(connection)
    listed = []
    for queues in count_queues_of_ports(connection, application=application):
        port_id = queues.port_id
        if port_id not in ports:
            continue
        port, circuit = ports[port_id], circuits.get(port_id)
        listed.append(
            PortListing(
                name=port.name,
                state=port.state,
                application=queues.application,
                host=queues.host,
                filter=port.filter,
                adapter=redact_adapter(port.adapter_json),
                uri=port.uri,
                maps=[describe_value(map_definition) for map_definition in port.definition["maps"].get("maps", ())],
                pipeline=_describe_pipeline(port.definition["pipeline"]),
                receive_pipeline=describe_value(port.definition["receive_pipeline"]) if port.is_two_way else None,
                settings=_describe_settings(port.settings),
                paused_since=None if circuit is None else circuit.opened_at,
                paused_by=None if circuit is None else circuit.opened_by,
                paused_because=None if circuit is None else circuit.reason,
                next_probe_at=None if circuit is None else circuit.next_probe_at,
                backup=None if port.backup is None else _describe_backup(port.backup),
                waiting=queues.waiting,
                retrying=queues.retrying,
                scheduled=queues.scheduled,
                next_attempt_at=queues.next_attempt_at,
                suspended=queues.suspended,
                port_id=port_id,
                transport_id=port.transport_id,
                subscription_id=port.subscription_id,
                groups=[group.name for group in groups if port_id in {member.port_id for member in group.members}],
            )
        )
    return listed


def get_port_details(connection: Connection, name: str) -> PortListing:
    """Return a send port. Raise NotFound if there is none with this name."""
    port = _get_send_port(connection, name)
    (found,) = (listing for listing in list_ports(connection) if listing.port_id == port.port_id)
    if not port.is_sink:
        return found
    return extend(found, SinkPortListing, guarantee=get_guarantee(port))


def get_guarantee(port: SendPort) -> str | None:
    """Return the delivery guarantee of a sink, or None if the login may not read its settings."""
    try:
        return port.adapter.guarantee
    except DefinitionError:
        return None


def _describe_pipeline(stored: Mapping[str, Any]) -> list[str]:
    return [
        f"{stage}: {describe_value(components)}"
        for stage, name in Send.list_stages()
        if (components := stored.get(name))
    ]


def _describe_backup(backup: Transport) -> dict[str, Any]:
    adapter = redact_adapter(backup.adapter_json)
    return {"adapter": adapter, "uri": backup.uri, **_describe_settings(backup.settings)}


def _describe_settings(settings: TransportSettings) -> dict[str, Any]:
    """Return the plain settings of a port or of its backup transport. Times are numbers of seconds."""
    described: dict[str, Any] = {}
    for name, field_info in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Retry):
            described |= {"retry_count": value.count, "retry_interval_seconds": value.interval}
        elif timedelta in get_args(field_info.annotation):
            described[f"{name}_seconds"] = None if value is None else value.total_seconds()
        else:
            described[name] = value if value is None or isinstance(value, bool | int | str) else str(value)
    return described


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
        port = _get_send_port(connection, name)
        is_probed = port.port_id in read_open_circuits(connection, ports=[port.port_id])
        done = Retried(name=port.name, retried=retry_now(connection, port.port_id), is_probed=is_probed)
        return done, get_host(connection, port.host_id).name

    done, host = operator_transaction(connection, work)
    WakeUp(connection).send([host])
    return done


def _get_send_port(connection: Connection, name: str) -> SendPort:
    return find_named({port.name: port for port in read_send_ports(connection)}, name, "send port", none=NONE_APPLIED)


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
    "Port", "port", _get_send_port, get_id=lambda port: port.port_id, enlist=enlist_port, unenlist=_unenlist
)
enlist, start, stop, unenlist = _OPERATIONS.enlist, _OPERATIONS.start, _OPERATIONS.stop, _OPERATIONS.unenlist
