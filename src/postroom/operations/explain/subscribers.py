"""Whoever could receive a message: activation subscriptions, and those that send ports would have, were they enlisted.

A send port has one of its own and one through each of its groups. There may be very many, so they come in batches, each
read when the one before it has been dealt with.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from postroom.agent.routing.table import read_filters
from postroom.errors import NotFound
from postroom.filters.authorisation import NOTHING_TO_SHOW, ApplicationProperties
from postroom.filters.expression import Filter, Group
from postroom.message import Context
from postroom.messagebox.configuration import (
    PortState,
    SendPort,
    SendPortGroup,
    application_properties,
    hosts,
    send_port_groups,
    send_ports,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.service_subscriptions import SubscriptionState
from postroom.messagebox.statements import statement
from postroom.operations.ports.enlistment import build_group_filter, build_port_filter
from postroom.operations.subscriptions import as_written, find_subscription, read_subscription_filters
from postroom.properties import Property
from postroom.system_properties import BTS

_AT_A_TIME = 2_000

#: Who is meant, rather than what the message is.
_DIRECTS = frozenset({BTS.SPTransportID.key, BTS.SPID.key, BTS.SPGroupID.key})


class Startable(NamedTuple):
    """A send port or a send port group: ``Startable("group", "Everyone")``."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A subscription, or what would be one. ``text`` is the filter as it was written, empty if that is not known."""

    name: str
    state: str
    host: str
    subscription_id: int | None
    filter: Filter
    text: str = ""
    not_started: tuple[Startable, ...] = ()
    """What has to be started before it receives anything."""
    shown: ApplicationProperties = NOTHING_TO_SHOW
    """What its host can show to be authorised."""
    waiting: bool = False
    """It is an instance that waits: its filter has values of messages."""

    @property
    def own_groups(self) -> tuple[Group, ...]:
        """The filter without the groups that every send port has for messages that name it."""
        return tuple(group for group in self.filter.groups if not _directs(group))

    def groups_for(self, *, directed: bool) -> tuple[Group, ...]:
        """The groups that have to do with a message. That a message which is directed to nobody is not directed to this
        one is no near miss, and would only stand in the way."""
        return self.filter.groups if directed else self.own_groups or self.filter.groups

    def as_written(self, properties: Iterable[Property]) -> Subscriber:
        """With the predicates in the order of the text, which people know; in their own where the two differ."""
        return replace(self, filter=as_written(self.filter, self.text, properties)) if self.text else self


def is_directed(context: Context) -> bool:
    """Does the message say who is to receive it?"""
    return not _DIRECTS.isdisjoint(context.promoted) or not _DIRECTS.isdisjoint(context.written)


def read_subscribers(connection: Connection, properties: list[Property]) -> Iterator[list[Subscriber]]:
    """Everybody, in batches."""
    by_key = {prop.key: prop for prop in properties}
    ports = _Ports(connection, properties)
    after = 0
    while True:
        rows = connection.execute(
            statement("queries/read_subscribers"), {"after": after, "limit": _AT_A_TIME}
        ).fetchall()
        if not rows:
            break
        filters = read_filters(connection, [row[0] for row in rows], by_key)
        yield [
            Subscriber(
                name=_through(name, group),
                state=SubscriptionState(state).name.lower(),
                host=host,
                subscription_id=subscription_id,
                filter=filters[subscription_id],
                text=text,
                not_started=() if state == SubscriptionState.STARTED else ports.not_started(service_id, group),
                shown=ports.shown_by(host),
            )
            for subscription_id, service_id, name, group, host, state, text in rows
            if subscription_id in filters  # else it was removed and purged in this very moment
        ]
        after = rows[-1][0]
    unenlisted = ports.unenlisted()
    while batch := list(islice(unenlisted, _AT_A_TIME)):
        yield batch


def find_subscriber(connection: Connection, called: str, properties: list[Property]) -> Subscriber:
    """The subscription with that id, or of the service of that name; or the send port, enlisted or not."""
    ports = _Ports(connection, properties)
    try:
        found = find_subscription(connection, called)
    except NotFound:
        for subscriber in ports.unenlisted():
            if subscriber.name == called:
                return subscriber
        raise
    return Subscriber(
        name=_through(found.service_name, found.group),
        state=found.state.name.lower(),
        host=found.host,
        subscription_id=found.subscription_id,
        filter=read_subscription_filters(connection, [found])[found.subscription_id],
        not_started=()
        if found.state is SubscriptionState.STARTED
        else ports.not_started(found.service_id, found.group),
        shown=ports.shown_by(found.host),
        waiting=found.instance_id is not None,
    )


class _Ports:
    """The send ports with their groups and hosts: what would subscribe, and what holds back those that do."""

    def __init__(self, connection: Connection, properties: list[Property]) -> None:
        self._properties = properties
        self._hosts = {host.host_id: host.name for host in hosts(connection)}
        shown = application_properties(connection)
        self._shown = {name: shown[host_id] for host_id, name in self._hosts.items() if host_id in shown}
        self._ports = {port.port_id: port for port in send_ports(connection)}
        self._groups = {group.name: group for group in send_port_groups(connection)}

    def shown_by(self, host: str) -> ApplicationProperties:
        return self._shown.get(host, NOTHING_TO_SHOW)

    def not_started(self, service_id: uuid.UUID, group: str | None) -> tuple[Startable, ...]:
        """Which of the two, the port and the group that it is subscribed through, are not started."""
        found: list[Startable] = []
        port = self._ports.get(service_id)
        if port is not None and port.state is not PortState.STARTED:
            found.append(Startable("port", port.name))
        through = self._groups.get(group or "")
        if through is not None and through.state is not PortState.STARTED:
            found.append(Startable("group", through.name))
        return tuple(found)

    def unenlisted(self) -> Iterator[Subscriber]:
        """The ports that have no subscription, and the members of groups that have none through them."""
        for port in self._ports.values():
            if port.state is PortState.BOUND:
                yield self._subscriber(port, None, build_port_filter(port, self._properties))
        for group in self._groups.values():
            filter = build_group_filter(group, self._properties)
            for member in group.members:
                if member.subscription_id is None and member.port_id in self._ports:
                    yield self._subscriber(self._ports[member.port_id], group, filter)

    def _subscriber(self, port: SendPort, group: SendPortGroup | None, filter: Filter) -> Subscriber:
        name = None if group is None else group.name
        return Subscriber(
            name=_through(port.name, name),
            state=PortState.BOUND.name.lower(),
            host=self._hosts[port.host_id],
            subscription_id=None,
            filter=filter,
            not_started=self.not_started(port.port_id, name),
            shown=self.shown_by(self._hosts[port.host_id]),
        )


def _through(port: str, group: str | None) -> str:
    return port if group is None else f"{port} through {group}"


def _directs(group: Group) -> bool:
    return len(group) == 1 and group[0].property.key in _DIRECTS
