"""The truth table of every operator over every type (ACC-05), and the decisions about what is not there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.properties import Property
from postroom.values import Value

#: type, a value below, equal and above
LADDERS: dict[type, tuple[Value, Value, Value]] = {
    str: ("ABC", "abc", "abcd"),
    int: (9, 10, 11),
    Decimal: (Decimal("9.99"), Decimal("10.00"), Decimal("10.01")),
    float: (9.5, 10.0, 10.5),
    datetime: (
        datetime(2026, 1, 31, 11, 59, 59, 999_999, tzinfo=UTC),
        datetime(2026, 1, 31, 12, tzinfo=UTC),
        datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC),
    ),
}
#: operator: below, equal, above
TRUTH = {
    Operator.EQ: (False, True, False),
    Operator.LT: (True, False, False),
    Operator.LE: (True, True, False),
    Operator.GT: (False, False, True),
    Operator.GE: (False, True, True),
    Operator.NE: (True, False, True),
    Operator.EXISTS: (True, True, True),
}


@pytest.mark.parametrize("operator", TRUTH)
@pytest.mark.parametrize("kind", LADDERS)
def test_truth_table(kind: type, operator: Operator) -> None:
    prop = Property("Orders.X", kind)
    ladder = LADDERS[kind]
    filter = Filter(((Predicate(prop, operator, None if operator is Operator.EXISTS else ladder[1]),),))
    assert tuple(matches(filter, {prop.key: value}) for value in ladder) == TRUTH[operator]
    assert not matches(filter, {})


def test_bool_knows_equal_and_not_equal() -> None:
    paid = Property("Orders.Paid", bool)
    assert matches(paid == True, {paid.key: True})  # noqa: E712
    assert not matches(paid == True, {paid.key: False})  # noqa: E712
    assert matches(paid != True, {paid.key: False})  # noqa: E712
    assert not matches(paid != True, {})  # noqa: E712
    assert matches(paid.exists(), {paid.key: False})


@pytest.mark.parametrize(
    ("value", "mask", "met"), [(6, 4, True), (3, 4, False), (-1, 1 << 62, True), (4, 0, False), (-(2**63), -1, True)]
)
def test_bitwise_and_asks_for_a_common_bit(value: int, mask: int, met: bool) -> None:
    flags = Property("Orders.Flags", int)
    assert matches(flags.bitand(mask), {flags.key: value}) is met
    assert not matches(flags.bitand(mask), {})


def test_an_or_of_and_groups() -> None:
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


def test_a_value_of_another_type_meets_nothing() -> None:
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
    name = Property("Orders.Name", str)
    assert not matches(name == "abc", {name.key: "ABC"})
    assert matches(name > "10", {name.key: "9"})
    assert matches(name > "\uffff", {name.key: "\U00010000"})


def test_a_datetime_compares_as_an_instant() -> None:
    due = Property("Orders.Due", datetime)
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert matches(due == noon, {due.key: noon.astimezone(timezone(timedelta(hours=2)))})


def test_a_range_is_two_predicates_on_one_property() -> None:
    priority = Property("Orders.Priority", int)
    filter = (priority >= 10) & (priority < 20)
    assert [matches(filter, {priority.key: n}) for n in (9, 10, 19, 20)] == [False, True, True, False]
