"""Workload W: subscriptions over five properties. A message matches about three, at any number of subscriptions.

At 100,000 subscriptions the domains are 500 message types, 200 receive ports, 50 countries and amounts up to
1,000,000. A group narrows messages down by two properties, so that with *n* times the subscriptions every domain is
√n times as wide. A group that holds only ranges narrows them down by one: there, amounts are n times as wide.

The kind TWELVE has properties of its own, whose domains are always the same. Hardly any message matches anything there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import sqrt

import numpy as np
import pyarrow as pa

from postroom.filters.expression import Filter, Group, Operator, Predicate
from postroom.filters.index import SubscriptionIndex
from postroom.properties import Property
from postroom.values import Value

Type = Property("Bench.MessageType", str)
Port = Property("Bench.ReceivePort", str)
Country = Property("Bench.Country", str)
Amount = Property("Bench.Amount", int)
Priority = Property("Bench.Priority", int)
PROPERTIES = (Type, Port, Country, Amount, Priority)
#: The properties of the kind TWELVE, with the number of their values, and how many of them a group compares.
LOW_CARDINALITY = tuple(Property(f"Bench.Low{number}", str) for number in range(40))
_LOW_VALUES, _LOW_EQUALITIES = 4, 12

PRIORITIES = 10
#: The number of subscriptions for which the domains of W are defined.
_NOMINAL = 100_000
#: Subscriptions per pair of type and port in W equal.
_SUBSCRIPTIONS_PER_PAIR = 3
#: Maximum width of a range of amounts, with a type and alone. Widths are distributed uniformly.
_WIDTH, _WIDTH_ALONE = 72_000, 90
#: Width of a range of priorities.
_PRIORITIES_IN_RANGE = 4
_PREFIXES = {Type: "http://example.org/orders#type", Port: "Port", Country: "C"} | dict.fromkeys(LOW_CARDINALITY, "V")


class Kind(StrEnum):
    """The predicates of the subscriptions."""

    EQUAL = "type and port"
    MIXED = "60 % type and port, 25 % type and a range, 10 % country, priority and type, 5 % an OR of two"
    HALF_RANGES = "as mixed, but half of the groups hold only ranges"
    THREE = "three predicates: half type, port and priority, half type and a range"
    TWELVE = "twelve equalities, over 40 properties of four values each"


@dataclass(frozen=True)
class Workload:
    """A kind of W with a number of subscriptions."""

    kind: Kind
    subscriptions: int

    def index(self) -> SubscriptionIndex:
        """Return a compiled index of all subscriptions, numbered from 0."""
        index = SubscriptionIndex()
        for id, filter in enumerate(self.filters()):
            index.add(id, filter)
        index.match_one({})
        return index

    def filters(self) -> Iterator[Filter]:
        """Yield the filters of the subscriptions, which are the same in every call."""
        generator = _FilterGenerator(self)
        for _ in range(self.subscriptions):
            yield generator.filter()

    def messages(self, count: int, *, seed: int = 7) -> dict[str, pa.Array]:
        """Return the columns of a batch in the form that a pipeline passes to the matcher."""
        rng = np.random.default_rng(seed)
        columns = {}
        for prop, size in self.domains.items():
            numbers = rng.integers(size, size=count).tolist()
            prefix = _PREFIXES.get(prop)
            columns[prop.key] = pa.array(numbers if prefix is None else [f"{prefix}{number}" for number in numbers])
        return columns

    @cached_property
    def domains(self) -> dict[Property, int]:
        """Return the number of distinct values of each property."""
        if self.kind is Kind.TWELVE:
            return dict.fromkeys(LOW_CARDINALITY, _LOW_VALUES)
        times = self.subscriptions / _NOMINAL
        if self.kind is Kind.EQUAL:
            times /= _SUBSCRIPTIONS_PER_PAIR
        wide = sqrt(times)
        return {
            Type: max(2, round(500 * wide)),
            Port: max(2, round(200 * wide)),
            Country: max(2, round(50 * wide)),
            Amount: round(1_000_000 * (times if self.kind is Kind.HALF_RANGES else wide)),
            Priority: PRIORITIES,
        }


class _FilterGenerator:
    """Generates random filters. Equality predicates are created once per value, because their cost is not measured."""

    def __init__(self, workload: Workload) -> None:
        self._kind = workload.kind
        self._domains = workload.domains
        self._uniform = _draw_forever(np.random.default_rng(2026))
        self._equalities: dict[tuple[Property, int], Predicate] = {}
        # The groups of a type share its messages, so ranges are narrower if a type has more groups.
        groups_per_type = sqrt(workload.subscriptions / _NOMINAL)
        self._width = _WIDTH * self._domains.get(Amount, 0) / 1_000_000 / groups_per_type

    def filter(self) -> Filter:
        groups: dict[Kind, Callable[[], tuple[Group, ...]]] = {
            Kind.EQUAL: lambda: (self._type_and_port(),),
            Kind.MIXED: self._mixed,
            Kind.HALF_RANGES: self._half_ranges,
            Kind.THREE: lambda: (self._three(),),
            Kind.TWELVE: lambda: (self._twelve(),),
        }
        return Filter(groups[self._kind]())

    def _mixed(self) -> tuple[Group, ...]:
        kind = next(self._uniform)
        if kind < 0.60:
            return (self._type_and_port(),)
        if kind < 0.85:
            return (self._type_and_range(),)
        if kind < 0.95:
            return ((self._equal(Country), self._priority_above(), self._equal(Type)),)
        return self._type_and_port(), self._type_and_range()

    def _half_ranges(self) -> tuple[Group, ...]:
        kind = next(self._uniform)
        if kind < 0.25:
            return (self._range(_WIDTH_ALONE),)
        if kind < 0.50:
            low = self._below(PRIORITIES - _PRIORITIES_IN_RANGE + 1)
            above, below = (
                Predicate(Priority, Operator.GE, low),
                Predicate(Priority, Operator.LT, low + _PRIORITIES_IN_RANGE),
            )
            return ((above, below, *self._range(_WIDTH_ALONE)),)
        return self._mixed()

    def _three(self) -> Group:
        if next(self._uniform) < 0.5:
            return (*self._type_and_port(), self._priority_above())
        return self._type_and_range()

    def _twelve(self) -> Group:
        remaining = list(LOW_CARDINALITY)
        return tuple(self._equal(remaining.pop(self._below(len(remaining)))) for _ in range(_LOW_EQUALITIES))

    def _type_and_port(self) -> Group:
        return self._equal(Type), self._equal(Port)

    def _type_and_range(self) -> Group:
        return self._equal(Type), *self._range(self._width)

    def _range(self, widest: float) -> tuple[Predicate, Predicate]:
        low = self._below(self._domains[Amount])
        high = low + 1 + int(next(self._uniform) * widest)
        return Predicate(Amount, Operator.GE, low), Predicate(Amount, Operator.LT, high)

    def _priority_above(self) -> Predicate:
        return Predicate(Priority, Operator.GT, self._below(PRIORITIES))

    def _equal(self, prop: Property) -> Predicate:
        number = self._below(self._domains[prop])
        found = self._equalities.get((prop, number))
        if found is None:
            value: Value = f"{_PREFIXES[prop]}{number}"
            found = self._equalities[prop, number] = Predicate(prop, Operator.EQ, value)
        return found

    def _below(self, end: int) -> int:
        return int(next(self._uniform) * end)


def _draw_forever(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(65_536).tolist()
