"""Messages that join an existing instance: instance subscriptions and convoys.

Instance subscriptions are looked up inside the publish transaction, by a hash of their correlation values. They change
with every instance, so they are not in the index in memory. A publisher knows the correlation types: the lists of
properties by which instances wait. For a message with all properties of such a list it looks up one hash, and compares
the values of the subscriptions that it finds.

A convoy sends messages with equal values of a convoy set's properties to one instance (ORC-20 … 22). The MessageBox
assigns the instance under the routing lock and at a primary key, so that two publishers of a new key create one
instance.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import pyarrow as pa

from postroom.agent.routing.table import Routing, Subscriber
from postroom.filters.columns import Columns, to_value_type
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.messagebox.connection import Connection
from postroom.messagebox.routing import find_instance_subscriptions, locate_convoy_instances, read_correlations
from postroom.messagebox.storage.stored_values import from_value_key, value_key
from postroom.properties import Property
from postroom.values import ValueType, type_of

#: A correlation type, and values (as value keys) in the order of its properties.
Correlation = tuple[int, tuple[str, ...]]


#: The MessageBox has columns for this many values of a convoy.
_CONVOY_VALUES = 3


def correlation_hash(correlation: Correlation) -> int:
    """Return the same hash as the function correlation_hash of the MessageBox."""
    type_id, values = correlation
    digest = hashlib.sha256("\x1f".join((str(type_id), *values)).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def find_correlations(columns: Columns, rows: int, routing: Routing) -> dict[Correlation, list[int]]:
    """Return the correlations for which instances may wait, from the promoted values, with the rows of the messages."""
    wanted: defaultdict[Correlation, list[int]] = defaultdict(list)
    for type_id, keys in routing.correlation_types.items():
        for row, values in enumerate(to_value_keys(columns, keys, rows, routing.value_types) or ()):
            if (complete := get_complete_values(values)) is not None:
                wanted[type_id, complete].append(row)
    return wanted


def find_instance_subscribers(
    connection: Connection, wanted: Mapping[Correlation, Sequence[int]]
) -> list[tuple[Subscriber, Sequence[int]]]:
    """Return the instance subscriptions that wait for these values, each with the messages that match it. Executes one
    statement."""
    if not wanted:
        return []
    rows = find_instance_subscriptions(connection, [correlation_hash(correlation) for correlation in wanted])
    found = []
    for _, type_id, values, *of_subscription, for_host_instance in rows:
        matched = wanted.get((type_id, tuple(values)))
        if matched is not None:  # otherwise another correlation with the same hash
            found.append((Subscriber.from_row([*of_subscription, None, None, None, for_host_instance]), matched))
    return found


def read_instance_filters(
    connection: Connection, ids: list[int], properties: Mapping[str, Property]
) -> dict[int, Filter]:
    """Return the filters of some instance subscriptions, from their stored values."""
    found: dict[int, Filter] = {}
    if not ids:  # a login without the right to read the values can still call this
        return found
    for subscription_id, keys, values in read_correlations(connection, ids):
        group = tuple(
            Predicate(prop := properties[key], Operator.EQ, from_value_key(prop.value_type, value))
            for key, value in zip(keys, values, strict=True)
        )
        found[subscription_id] = Filter((group,))
    return found


def to_value_keys(
    columns: Columns, keys: Sequence[str], rows: int, value_types: Mapping[str, ValueType]
) -> list[tuple[str | None, ...]] | None:
    """Return the values of these properties per message, as value keys, or None if no message can have all of them."""
    texts = []
    for key in keys:
        column = columns.get(key)
        wanted = value_types.get(key)
        if column is None or wanted is not (
            to_value_type(column.type) if isinstance(column, pa.Array) else type_of(column)
        ):
            return None
        texts.append(_column_to_value_keys(column) if isinstance(column, pa.Array) else [value_key(column)] * rows)
    return list(zip(*texts, strict=True))


def get_complete_values(values: tuple[str | None, ...]) -> tuple[str, ...] | None:
    """Return the values if none of them is missing."""
    return None if None in values else cast(tuple[str, ...], values)


def _column_to_value_keys(column: pa.Array) -> list[str | None]:
    values: list[Any] = column.to_pylist()
    if to_value_type(column.type) is ValueType.STR:
        return values
    return [None if value is None else value_key(value) for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convoy:
    """A convoy set, and its values (as value keys) in one message."""

    convoy_set_id: int
    values: tuple[str, ...]


class LocatedInstance(NamedTuple):
    """The instance of a convoy. ``is_running`` is only known with ``find_running``, otherwise False."""

    instance_id: uuid.UUID
    is_running: bool


def locate_instances(
    connection: Connection, convoys: Sequence[Convoy], offered: Sequence[uuid.UUID], *, find_running: bool
) -> list[LocatedInstance]:
    """Return the instance of each convoy. A convoy without an instance gets the one that is offered.

    The caller is in the transaction that publishes. A message that lacks one of the properties is in no convoy, and
    activates an instance of its own.
    """
    if not convoys:
        return []
    columns = [
        [convoy.values[number] if number < len(convoy.values) else None for convoy in convoys]
        for number in range(_CONVOY_VALUES)
    ]
    sets = [convoy.convoy_set_id for convoy in convoys]
    located = locate_convoy_instances(connection, sets, columns, offered, find_running=find_running)
    by_number = {number: LocatedInstance(*instance) for number, *instance in located}
    return [by_number[number] for number in range(1, len(convoys) + 1)]
