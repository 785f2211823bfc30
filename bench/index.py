"""The index: a batch of 10,000 messages at 10,000 subscriptions against ``evaluate`` on a sample of it.

    python -m bench.index

The subscriptions are a mixture: 60 % a message type and a port, 25 % a message type and a range of amounts, 10 % a
country, a priority and a message type, 5 % an OR of two of these; a message meets about three. What the index finds
for the sample is compared with what ``evaluate`` says before anything is measured.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from bench.ratios import Result, in_turn, ratio_of, seconds
from postroom.filters.columns import columns_of
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.filters.index import SubscriptionIndex
from postroom.properties import Property
from postroom.values import Value

SUBSCRIPTIONS = 10_000
MESSAGES = 10_000
SAMPLE = 10
ROUNDS = 7

Type = Property("Bench.MessageType", str)
Port = Property("Bench.ReceivePort", str)
Country = Property("Bench.Country", str)
Amount = Property("Bench.Amount", int)
Priority = Property("Bench.Priority", int)
TYPES, PORTS, COUNTRIES, AMOUNTS, PRIORITIES = 150, 40, 50, 1_000_000, 10


def measure() -> Result:
    """The index's messages a second over the evaluator's."""
    chance = random.Random(2026)
    subscriptions = {id: _subscription(chance) for id in range(SUBSCRIPTIONS)}
    messages = [_message(chance) for _ in range(MESSAGES)]
    index = SubscriptionIndex()
    for id, filter in subscriptions.items():
        index.add(id, filter)
    columns = columns_of(messages)
    sample = messages[:SAMPLE]
    _compare(index, subscriptions, sample)

    def by_index() -> float:
        return MESSAGES / seconds(lambda: index.match(columns, MESSAGES))

    def by_evaluator() -> float:
        return SAMPLE / seconds(lambda: [_evaluated(subscriptions, promoted) for promoted in sample])

    pairs = in_turn(by_index, by_evaluator, rounds=ROUNDS)
    ratio, spread = ratio_of(pairs)
    fast, slow = (float(np.median(side)) for side in zip(*pairs, strict=True))
    met = len(index.match(columns, MESSAGES)[0]) / MESSAGES
    return Result(
        name="index: match a batch of 10,000 messages at 10,000 subscriptions, against `evaluate` on a sample",
        group="A",
        measured=ratio,
        bar=1_000,
        spread=spread,
        detail=f"{fast:,.0f} messages/s against {slow:,.1f}; {met:.1f} matches a message",
    )


def _subscription(chance: random.Random) -> Filter:
    kind = chance.random()
    if kind < 0.60:
        return _equalities(chance)
    if kind < 0.85:
        return _range(chance)
    if kind < 0.95:
        country = Country == f"C{chance.randrange(COUNTRIES)}"
        return country & (Priority > chance.randrange(PRIORITIES)) & _type(chance)
    return _equalities(chance) | _range(chance)


def _type(chance: random.Random) -> Filter:
    return Type == f"http://example.org/orders#type{chance.randrange(TYPES)}"


def _equalities(chance: random.Random) -> Filter:
    return _type(chance) & (Port == f"Port{chance.randrange(PORTS)}")


def _range(chance: random.Random) -> Filter:
    low = chance.randrange(AMOUNTS)
    return _type(chance) & (Amount >= low) & (Amount < low + AMOUNTS // 10)


def _message(chance: random.Random) -> dict[str, Value]:
    return {
        Type.key: f"http://example.org/orders#type{chance.randrange(TYPES)}",
        Port.key: f"Port{chance.randrange(PORTS)}",
        Country.key: f"C{chance.randrange(COUNTRIES)}",
        Amount.key: chance.randrange(AMOUNTS),
        Priority.key: chance.randrange(PRIORITIES),
    }


def _evaluated(subscriptions: Mapping[int, Filter], promoted: Mapping[str, Value]) -> list[int]:
    return [id for id, filter in subscriptions.items() if matches(filter, promoted)]


def _compare(index: SubscriptionIndex, subscriptions: Mapping[int, Filter], sample: list[dict[str, Value]]) -> None:
    rows, ids = index.match(columns_of(sample), len(sample))
    found = [ids[rows == row].tolist() for row in range(len(sample))]
    if found != [_evaluated(subscriptions, promoted) for promoted in sample]:
        raise RuntimeError("The index and the evaluator disagree; nothing was measured.")


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
