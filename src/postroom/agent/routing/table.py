"""The routing table: a versioned index of the subscriptions in memory. Both lanes match with it.

The table is loaded once per process. Then each change is read once, and makes a new ``Routing``. A publish works with
the routing that it began with. It may be out of date: a publish compares the version under the routing lock
(``lock_routing``) before it writes a queue row.
"""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from postroom.agent.originator import PublisherLogin, read_login
from postroom.filters.authorisation import ApplicationProperties
from postroom.filters.columns import Columns
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.filters.index import Piece, SubscriptionIndex
from postroom.messagebox.configuration.hosts import ServiceClass, read_application_properties, read_hosts
from postroom.messagebox.configuration.properties import read_property_types
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import QueueTask
from postroom.messagebox.routing import (
    read_changed_subscriptions,
    read_predicates,
    read_property_lists,
    read_routing_versions,
)
from postroom.messagebox.storage.stored_values import StoredValue, from_stored
from postroom.properties import Property
from postroom.values import ValueType

#: Number of filters that are read at a time. As objects they take many times the memory that they have in the index.
FILTERS_PER_READ = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """The columns of a subscription that a queue row needs."""

    subscription_id: int
    host_id: int
    service_class: ServiceClass
    service_id: uuid.UUID
    service_name: str
    priority: int
    started: bool
    #: True if the messages are delivered in the order in which they are published.
    ordered: bool = False
    group_id: uuid.UUID | None = None
    group_name: str | None = None
    """The send port group, if the subscription is that of a group."""
    #: Of an instance subscription: the instance that waits.
    instance_id: uuid.UUID | None = None
    #: Of an activation subscription that keeps convoys together.
    convoy_set_id: int | None = None
    #: Of a request that waits for its response: the host instance that holds the caller.
    for_host_instance: int | None = None

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Subscriber:
        """Return a subscriber from the columns that all queries for subscriptions share, in order."""
        subscription_id, host_id, service_class, service_id, name, priority, state, *others = row
        ordered, instance_id, convoy_set_id, group_id, group_name, for_host_instance = others
        return cls(
            subscription_id=subscription_id,
            host_id=host_id,
            service_class=ServiceClass(service_class),
            service_id=service_id,
            service_name=name,
            priority=priority,
            started=state == ServiceState.STARTED,
            ordered=ordered,
            instance_id=instance_id,
            convoy_set_id=convoy_set_id,
            group_id=group_id,
            group_name=group_name,
            for_host_instance=for_host_instance,
        )

    @property
    def is_caller(self) -> bool:
        """True if a request waits for its response: of a two-way receive location, a program or an orchestration."""
        has_instance = self.service_class in (ServiceClass.PROGRAMS, ServiceClass.ORCHESTRATIONS)
        return self.for_host_instance is not None or (has_instance and self.instance_id is not None)

    @property
    def task(self) -> QueueTask:
        """The task of the queue rows of this subscription, as evaluate_subscriptions writes it."""
        if self.instance_id is not None or self.convoy_set_id is not None:
            return QueueTask.JOIN_INSTANCE
        if self.ordered and self.service_class == ServiceClass.MESSAGING_IN_PROCESS:
            return QueueTask.DELIVER_IN_ORDER
        return QueueTask.DELIVER

    @property
    def joined_instance_id(self) -> uuid.UUID | None:
        """The instance that every match joins: the instance that waits, or that of an ordered send port."""
        return self.service_id if self.task is QueueTask.DELIVER_IN_ORDER else self.instance_id


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The subscriptions of a MessageBox at one routing version, and the application properties of its hosts. It never
    changes, so threads share it.

    ``login`` is the login that read it, and whether it is trusted.
    """

    version: int = 0
    properties: Mapping[str, Property] = field(default_factory=dict)
    value_types: Mapping[str, ValueType] = field(default_factory=dict)
    subscribers: dict[int, Subscriber] = field(default_factory=dict)
    host_names: Mapping[int, str] = field(default_factory=dict)
    """In lower case, as queues are named."""
    host_display_names: Mapping[int, str] = field(default_factory=dict)
    messaging_classes: Mapping[int, ServiceClass] = field(default_factory=dict)
    """The service class of the messaging of each host."""
    application_properties: Mapping[int, ApplicationProperties] = field(default_factory=dict)
    login: PublisherLogin = field(default_factory=PublisherLogin)
    #: The property keys by which instance subscriptions wait, by correlation type, in the order of their values.
    correlation_types: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    #: The property keys that keep convoys together, by convoy set.
    convoy_sets: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    index: SubscriptionIndex = field(default_factory=SubscriptionIndex)

    def match_in_pieces(self, columns: Columns, rows: int) -> Iterator[Piece]:
        """Yield the matches of a batch for consecutive ranges of messages, ordered by row and id."""
        if rows == 1 and not any(isinstance(column, pa.Array) for column in columns.values()):
            # Several times faster than a batch of one message.
            ids = self.index.match_one(columns)
            yield Piece(0, 1, np.zeros(len(ids), dtype=np.int64), np.array(ids, dtype=np.int64))
        else:
            yield from self.index.match_in_pieces(columns, rows)


class RoutingTable:
    """Holds the current routing of a MessageBox. A process has one, which its threads share."""

    def __init__(self) -> None:
        self._current = Routing()
        #: Held while changes are read, so that they are read once.
        self._reading = threading.Lock()

    def load(self, connection: Connection) -> Routing:
        """Return the routing as it was last read. Read it if it was never read before."""
        return self._current if self._current.version else self.catch_up(connection)

    def catch_up(self, connection: Connection) -> Routing:
        """Read the subscriptions that have changed, and return the routing with these changes."""
        version, _ = read_routing_versions(connection)
        current = self._current
        if version == current.version:
            return current
        with self._reading:
            self._current = _read_changes(connection, self._current)
            return self._current


def _read_changes(connection: Connection, known: Routing) -> Routing:
    """Return the routing of now. Read the subscriptions that changed since the known one, or all of them if removals
    were purged. Rows may be newer than the version. They are read again next time, with the same result."""
    version, rebuild_below = read_routing_versions(connection)
    if version == known.version:
        return known
    if known.version < rebuild_below:
        known = Routing()
    index, subscribers = known.index.copy(), dict(known.subscribers)
    added = []
    for row in read_changed_subscriptions(connection, known.version):
        *of_subscription, is_removed = row
        subscriber = Subscriber.from_row(of_subscription)
        is_known = subscriber.subscription_id in index
        if not is_removed:
            subscribers[subscriber.subscription_id] = subscriber
            if not is_known:
                added.append(subscriber.subscription_id)
            continue
        if is_known:
            index.remove(subscriber.subscription_id)
        subscribers.pop(subscriber.subscription_id, None)
    # Read after the changes, because a property is deployed before the filters that name it.
    properties = _read_properties(connection, known.properties)
    lists = read_property_lists(connection)
    hosts = read_hosts(connection)
    for start in range(0, len(added), FILTERS_PER_READ):
        filters = read_filters(connection, added[start : start + FILTERS_PER_READ], properties)
        for subscription_id, filter in filters.items():
            index.add(subscription_id, filter)
    return Routing(
        version=version,
        properties=properties,
        value_types={key: prop.value_type for key, prop in properties.items()},
        subscribers=subscribers,
        host_names={host.host_id: host.name.lower() for host in hosts},
        host_display_names={host.host_id: host.name for host in hosts},
        messaging_classes={host.host_id: host.messaging_class for host in hosts},
        application_properties=read_application_properties(connection),
        login=read_login(connection),
        correlation_types=lists["correlation"],
        convoy_sets=lists["convoy"],
        index=index,
    )


def _read_properties(connection: Connection, known: Mapping[str, Property]) -> dict[str, Property]:
    return {
        key: known.get(key) or Property.from_key(key, value_type)
        for key, value_type in read_property_types(connection).items()
    }


def read_filters(connection: Connection, ids: list[int], properties: Mapping[str, Property]) -> dict[int, Filter]:
    """Return the filters of some subscriptions, from their predicates."""
    groups: defaultdict[int, defaultdict[int, list[Predicate]]] = defaultdict(lambda: defaultdict(list))
    for subscription_id, group, key, operator, *stored in read_predicates(connection, ids):
        prop = properties[key]
        value = from_stored(prop.value_type, _to_stored_value(stored))
        groups[subscription_id][group].append(Predicate(prop, Operator(operator), value))
    return {
        subscription_id: Filter(tuple(tuple(group) for _, group in sorted(by_group.items())))
        for subscription_id, by_group in groups.items()
    }


def _to_stored_value(stored: list[object]) -> StoredValue:
    text, number, exact, real = stored
    return text, number, exact, real  # type: ignore[return-value]
