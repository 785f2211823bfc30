"""Who subscribes to what, in memory: the versioned index that both lanes match with.

A table is loaded once per process and catches up from the subscriptions' version numbers. It may be behind; a
publish compares the version under the routing lock (``lock_routing``) before it writes a single queue row.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroom.filters.columns import Columns
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.filters.index import SubscriptionIndex
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.stored_values import StoredValue, from_stored
from postroom.properties import Property
from postroom.values import Value, ValueType

_STARTED, _DISABLED = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """What a queue row needs to know of a subscription."""

    subscription_id: int
    host_id: int
    service_class: int
    service_id: uuid.UUID
    service_name: str
    priority: int
    started: bool


class RoutingTable:
    """The subscriptions of a MessageBox as of one routing version."""

    def __init__(self) -> None:
        self.version = 0
        self.properties: dict[str, Property] = {}
        self.value_types: dict[str, ValueType] = {}
        self.subscribers: dict[int, Subscriber] = {}
        self.host_names: dict[int, str] = {}
        self._index = SubscriptionIndex()

    def match(self, columns: Columns, rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For a batch: row numbers and subscription ids of every match, by row, then id."""
        return self._index.match(columns, rows)

    def match_one(self, promoted: Mapping[str, Value]) -> list[int]:
        """The ids of the subscriptions that one message meets."""
        return self._index.match_one(promoted)

    def catch_up(self, connection: Connection) -> None:
        """Reads what changed since this table's version; everything, if removals were purged in the meantime."""
        row = connection.execute("SELECT version, rebuild_below FROM routing_version").fetchone()
        assert row is not None
        version, rebuild_below = row
        if version == self.version:
            return
        if self.version < rebuild_below:
            self.version = 0
            self.subscribers.clear()
            self._index = SubscriptionIndex()
        self._read_names(connection)
        self._read_changes(connection)
        self.version = version

    def _read_names(self, connection: Connection) -> None:
        for key, value_type in connection.execute("SELECT key, value_type FROM properties"):
            if key not in self.properties:
                self.properties[key] = Property.from_key(key, ValueType(value_type))
                self.value_types[key] = ValueType(value_type)
        self.host_names = {i: name.lower() for i, name in connection.execute("SELECT id, name FROM hosts")}

    def _read_changes(self, connection: Connection) -> None:
        added: list[int] = []
        changed = connection.execute(statement("queries/changed_subscriptions"), (self.version,)).fetchall()
        for subscription_id, host_id, service_class, service_id, name, priority, state, removed in changed:
            known = subscription_id in self.subscribers
            if removed or state == _DISABLED:
                if known:
                    del self.subscribers[subscription_id]
                    self._index.remove(subscription_id)
                continue
            self.subscribers[subscription_id] = Subscriber(
                subscription_id=subscription_id,
                host_id=host_id,
                service_class=service_class,
                service_id=service_id,
                service_name=name,
                priority=priority,
                started=state == _STARTED,
            )
            if not known:
                added.append(subscription_id)
        for subscription_id, expression in read_filters(connection, added, self.properties).items():
            self._index.add(subscription_id, expression)


def read_filters(connection: Connection, ids: list[int], properties: Mapping[str, Property]) -> dict[int, Filter]:
    """The filters of some subscriptions, from their predicates."""
    groups: defaultdict[int, defaultdict[int, list[Predicate]]] = defaultdict(lambda: defaultdict(list))
    rows = connection.execute(statement("queries/read_predicates"), (ids,))
    for subscription_id, group, key, operator, *stored in rows:
        prop = properties[key]
        value = from_stored(prop.value_type, _columns(stored))
        groups[subscription_id][group].append(Predicate(prop, Operator(operator), value))
    return {
        subscription_id: Filter(tuple(tuple(group) for _, group in sorted(by_group.items())))
        for subscription_id, by_group in groups.items()
    }


def _columns(stored: list[object]) -> StoredValue:
    text, number, exact, real = stored
    return text, number, exact, real  # type: ignore[return-value]
