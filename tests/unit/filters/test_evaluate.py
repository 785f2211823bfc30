"""Evaluation of filters. Single comparisons are tested with the catalogue (tests/support/catalogue.py)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.properties import Property
from postroom.values import Value


def test_a_filter_matches_if_one_of_its_groups_matches() -> None:
    """PRED-02."""
    a, b, c = Property("T.A", int), Property("T.B", int), Property("T.C", str)
    filter = (a == 1) & (b == 2) | c.exists()
    contexts: list[dict[str, Value]] = [
        {a.key: 1, b.key: 2},
        {a.key: 1},
        {c.key: ""},
        {a.key: 1, b.key: 2, c.key: "9"},
        {},
    ]
    assert [matches(filter, context) for context in contexts] == [True, False, True, True, False]


def test_a_value_of_another_type_matches_nothing() -> None:
    number = Property("Orders.N", int)
    builders: list[Callable[[Any], Filter]] = [
        lambda p: p == 1,
        lambda p: p != 1,
        lambda p: p < 2,
        lambda p: p.exists(),
    ]
    others: list[Value] = [True, 1.0, Decimal(1), "1"]
    for build in builders:
        assert not any(matches(build(number), {number.key: other}) for other in others)


def test_text_compares_by_code_point() -> None:
    """PRED-08."""
    name = Property("Orders.Name", str)
    assert not matches(name == "abc", {name.key: "ABC"})
    assert matches(name > "10", {name.key: "9"})
    assert matches(name > "\uffff", {name.key: "\U00010000"})


def test_a_datetime_compares_as_an_instant() -> None:
    """PRED-08."""
    due = Property("Orders.Due", datetime)
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert matches(due == noon, {due.key: noon.astimezone(timezone(timedelta(hours=2)))})


def test_two_bounds_on_one_property_are_a_range() -> None:
    """PRED-15."""
    priority = Property("Orders.Priority", int)
    filter = (priority >= 10) & (priority < 20)
    assert [matches(filter, {priority.key: n}) for n in (9, 10, 19, 20)] == [False, True, True, False]
