"""Subscription indexes for tests, and each way in which an index matches a batch."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

import numpy as np
import pytest

from postroom.filters import index as index_module
from postroom.filters.columns import build_columns
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.filters.index import SubscriptionIndex
from postroom.filters.matching import two_passes
from postroom.properties import Property
from postroom.values import Value

Region = Property("Orders.Region", str)
Port = Property("Orders.Port", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
Weight = Property("Orders.Weight", float)
Paid = Property("Orders.Paid", bool)
Due = Property("Orders.Due", datetime)
CHOICES = [Property(f"Orders.Choice{number}", str) for number in range(40)]


@pytest.fixture(params=["all together", "by signatures", "one by one"], autouse=True)
def way_of_matching(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Match the messages of every batch together, without and with signatures, or one by one."""
    monkeypatch.setattr(index_module, "MIN_VALUES_OF_COLUMN", 1_000_000 if request.param == "one by one" else 0)
    if request.param == "by signatures":
        monkeypatch.setattr(two_passes, "COST_OF_PREDICATE", -1_000_000)


def build_index(*filters: Filter) -> SubscriptionIndex:
    index = SubscriptionIndex()
    for id, filter in enumerate(filters, start=1):
        index.add(id, filter)
    return index


def match_pairs(index: SubscriptionIndex, columns: Mapping[str, object], rows: int) -> list[tuple[int, int]]:
    messages, ids = index.match(columns, rows)
    assert messages.dtype == ids.dtype == np.int64
    return list(zip(messages.tolist(), ids.tolist(), strict=True))


def assert_equals_evaluator(
    filters: Mapping[int, Filter], index: SubscriptionIndex, batch: Sequence[Mapping[str, Value]]
) -> None:
    expected = [sorted(id for id, filter in filters.items() if matches(filter, promoted)) for promoted in batch]
    assert [index.match_one(promoted) for promoted in batch] == expected
    assert match_pairs(index, build_columns(batch), len(batch)) == [
        (row, id) for row, ids in enumerate(expected) for id in ids
    ]


def build_index_with_ids(filters: Mapping[int, Filter], **sizes: int) -> SubscriptionIndex:
    index = SubscriptionIndex(**sizes)
    for id, filter in filters.items():
        index.add(id, filter)
    return index


def random_order(random: random.Random) -> dict[str, Value]:
    return {
        Region.key: f"R{random.randrange(4)}",
        Port.key: f"P{random.randrange(30)}",
        Priority.key: random.randrange(100),
    }
