"""Whoever could receive a message: activation subscriptions, and send ports that would have one if they were enlisted.

There may be very many, so they come in batches, each read when the one before it has been dealt with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from postroom.agent.routing import read_filters
from postroom.errors import NotFound
from postroom.filters.expression import Filter, Group
from postroom.message import Context
from postroom.messagebox.configuration import PortState, SendPort, hosts, send_ports
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.operations.enlistment import subscription_filter
from postroom.operations.subscriptions import SubscriptionState, as_written, filters_of, subscription_called
from postroom.properties import Property
from postroom.system_properties import BTS

_AT_A_TIME = 2_000

#: Who is meant, rather than what the message is.
_DIRECTS = frozenset({BTS.SPTransportID.key, BTS.SPGroupID.key})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A subscription, or what would be one. ``text`` is the filter as it was written, empty if that is not known."""

    name: str
    state: str
    host: str
    subscription_id: int | None
    filter: Filter
    text: str = ""

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
        return Subscriber(
            name=self.name,
            state=self.state,
            host=self.host,
            subscription_id=self.subscription_id,
            filter=as_written(self.filter, self.text, properties) if self.text else self.filter,
        )


def is_directed(context: Context) -> bool:
    """Does the message say who is to receive it?"""
    return not _DIRECTS.isdisjoint(context.promoted) or not _DIRECTS.isdisjoint(context.written)


def all_subscribers(connection: Connection, properties: list[Property]) -> Iterator[list[Subscriber]]:
    """Everybody, in batches."""
    by_key = {prop.key: prop for prop in properties}
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
                name=name,
                state=SubscriptionState(state).name.lower(),
                host=host,
                subscription_id=subscription_id,
                filter=filters[subscription_id],
                text=text,
            )
            for subscription_id, name, host, state, text in rows
            if subscription_id in filters  # else it was removed and purged in this very moment
        ]
        after = rows[-1][0]
    host_names = {host.host_id: host.name for host in hosts(connection)}
    bound = [port for port in send_ports(connection) if port.state is PortState.BOUND]
    for start in range(0, len(bound), _AT_A_TIME):
        yield [_unenlisted(port, host_names[port.host_id], properties) for port in bound[start : start + _AT_A_TIME]]


def subscriber_called(connection: Connection, called: str, properties: list[Property]) -> Subscriber:
    """The subscription with that id, or of the service of that name; or the send port, enlisted or not."""
    try:
        found = subscription_called(connection, called)
    except NotFound:
        for port in send_ports(connection):
            if port.name == called:
                host_names = {host.host_id: host.name for host in hosts(connection)}
                return _unenlisted(port, host_names[port.host_id], properties)
        raise
    return Subscriber(
        name=found.service_name if found.group is None else f"{found.service_name} through {found.group}",
        state=found.state.name.lower(),
        host=found.host,
        subscription_id=found.subscription_id,
        filter=filters_of(connection, [found])[found.subscription_id],
    )


def _unenlisted(port: SendPort, host: str, properties: list[Property]) -> Subscriber:
    return Subscriber(
        name=port.name,
        state=PortState.BOUND.name.lower(),
        host=host,
        subscription_id=None,
        filter=subscription_filter(port, properties),
    )


def _directs(group: Group) -> bool:
    return len(group) == 1 and group[0].property.key in _DIRECTS
