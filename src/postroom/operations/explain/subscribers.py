"""Read the possible receivers of a message: activation subscriptions, and send ports that are not enlisted.

A send port has a subscription of its own and one through each of its groups. Subscribers are read in batches, because
there may be very many.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from postroom.agent.routing.table import read_filters
from postroom.errors import NotFound
from postroom.filters.authorisation import NO_APPLICATION_PROPERTIES, ApplicationProperties
from postroom.filters.expression import Filter, Group
from postroom.message import Context
from postroom.messagebox.configuration.hosts import read_application_properties, read_hosts
from postroom.messagebox.configuration.send_port_groups import SendPortGroup, read_send_port_groups
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.stored_subscriptions import read_activations
from postroom.operations.ports.enlistment import build_group_filter, build_port_filter
from postroom.operations.subscriptions import find_subscription, read_subscription_filters, restore_written_order
from postroom.ports.send_ports import SendPort, read_send_ports
from postroom.properties import Property
from postroom.system_properties import BTS

_BATCH_SIZE = 2_000

#: The properties that direct a message to a port or a group.
_DIRECTING_KEYS = frozenset({BTS.SPTransportID.key, BTS.SPID.key, BTS.SPGroupID.key})


@dataclass(frozen=True, slots=True)
class Startable:
    """A service that an operator can start: ``Startable("group", "Everyone")``."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleSubscriber:
    """A subscription, or a send port that would have one. ``text`` is the filter as the user wrote it, or empty."""

    name: str
    state: str
    host: str
    subscription_id: int | None
    filter: Filter
    text: str = ""
    not_started: tuple[Startable, ...] = ()
    """The port and the group that have to be started before it receives messages."""
    host_properties: ApplicationProperties = NO_APPLICATION_PROPERTIES
    """The application properties of its host, which decide whether it is authorised."""
    is_instance: bool = False
    """It is the subscription of an instance: the values in its filter come from messages."""

    @property
    def own_groups(self) -> tuple[Group, ...]:
        """The filter without the group that matches messages directed to this send port."""
        return _get_own_groups(self.filter)

    def restore_written_order(self, properties: Iterable[Property]) -> PossibleSubscriber:
        """Return the subscriber with the predicates of its filter in the order in which the user wrote them."""
        return replace(self, filter=restore_written_order(self.filter, self.text, properties)) if self.text else self


def is_directed(context: Context) -> bool:
    """Return True if the message is directed to a port or a group."""
    return not (_DIRECTING_KEYS.isdisjoint(context.promoted) and _DIRECTING_KEYS.isdisjoint(context.written))


def select_groups(filter: Filter, *, directed: bool) -> tuple[Group, ...]:
    """Return the groups of a filter that are relevant for a message.

    For a message that is not directed, the group for directed messages would only be a misleading near miss."""
    return filter.groups if directed else _get_own_groups(filter) or filter.groups


def read_subscribers(connection: Connection, properties: list[Property]) -> Iterator[list[PossibleSubscriber]]:
    """Yield all subscribers in batches."""
    by_key = {prop.key: prop for prop in properties}
    ports = _Ports(connection, properties)
    after = 0
    while True:
        rows = read_activations(connection, after=after, limit=_BATCH_SIZE)
        if not rows:
            break
        filters = read_filters(connection, [row.subscription_id for row in rows], by_key)
        yield [
            PossibleSubscriber(
                name=_format_name(row.service_name, row.group),
                state=row.state,
                host=row.host,
                subscription_id=row.subscription_id,
                filter=filters[row.subscription_id],
                text=row.filter,
                not_started=()
                if row.state is ServiceState.STARTED
                else ports.find_not_started(row.service_id, row.group),
                host_properties=ports.get_host_properties(row.host),
            )
            for row in rows
            if row.subscription_id in filters  # it may have been removed and purged in the meantime
        ]
        after = rows[-1].subscription_id
    unenlisted = ports.iterate_unenlisted()
    while batch := list(islice(unenlisted, _BATCH_SIZE)):
        yield batch


def find_subscriber(connection: Connection, id_or_name: str, properties: list[Property]) -> PossibleSubscriber:
    """Return the subscription with this id or of the service with this name, or a send port that is not enlisted."""
    ports = _Ports(connection, properties)
    try:
        found = find_subscription(connection, id_or_name)
    except NotFound:
        for subscriber in ports.iterate_unenlisted():
            if subscriber.name == id_or_name:
                return subscriber
        raise
    return PossibleSubscriber(
        name=_format_name(found.service_name, found.group),
        state=found.state,
        host=found.host,
        subscription_id=found.subscription_id,
        filter=read_subscription_filters(connection, [found])[found.subscription_id],
        not_started=()
        if found.state is ServiceState.STARTED
        else ports.find_not_started(found.service_id, found.group),
        host_properties=ports.get_host_properties(found.host),
        is_instance=found.instance_id is not None,
    )


class _Ports:
    """The send ports with their groups and hosts, read once."""

    def __init__(self, connection: Connection, properties: list[Property]) -> None:
        self._properties = properties
        self._hosts = {host.host_id: host.name for host in read_hosts(connection)}
        by_id = read_application_properties(connection)
        self._host_properties = {name: by_id[host_id] for host_id, name in self._hosts.items() if host_id in by_id}
        self._ports = {port.port_id: port for port in read_send_ports(connection)}
        self._groups = {group.name: group for group in read_send_port_groups(connection)}

    def get_host_properties(self, host: str) -> ApplicationProperties:
        """Return the application properties of a host."""
        return self._host_properties.get(host, NO_APPLICATION_PROPERTIES)

    def find_not_started(self, service_id: uuid.UUID, group: str | None) -> tuple[Startable, ...]:
        """Return the port, the group that it subscribes through, or both, if they are not started."""
        found: list[Startable] = []
        port = self._ports.get(service_id)
        if port is not None and port.state is not ServiceState.STARTED:
            found.append(Startable("port", port.name))
        through = self._groups.get(group or "")
        if through is not None and through.state is not ServiceState.STARTED:
            found.append(Startable("group", through.name))
        return tuple(found)

    def iterate_unenlisted(self) -> Iterator[PossibleSubscriber]:
        """Yield the ports without a subscription, and the members without a subscription through their group."""
        for port in self._ports.values():
            if port.state is ServiceState.BOUND:
                yield self._build_subscriber(port, None, build_port_filter(port, self._properties))
        for group in self._groups.values():
            filter = build_group_filter(group, self._properties)
            for member in group.members:
                if member.subscription_id is None and member.port_id in self._ports:
                    yield self._build_subscriber(self._ports[member.port_id], group, filter)

    def _build_subscriber(self, port: SendPort, group: SendPortGroup | None, filter: Filter) -> PossibleSubscriber:
        name = None if group is None else group.name
        return PossibleSubscriber(
            name=_format_name(port.name, name),
            state=ServiceState.BOUND,
            host=self._hosts[port.host_id],
            subscription_id=None,
            filter=filter,
            not_started=self.find_not_started(port.port_id, name),
            host_properties=self.get_host_properties(self._hosts[port.host_id]),
        )


def _format_name(port: str, group: str | None) -> str:
    return port if group is None else f"{port} through {group}"


def _get_own_groups(filter: Filter) -> tuple[Group, ...]:
    return tuple(group for group in filter.groups if not _is_directing(group))


def _is_directing(group: Group) -> bool:
    return len(group) == 1 and group[0].property.key in _DIRECTING_KEYS
