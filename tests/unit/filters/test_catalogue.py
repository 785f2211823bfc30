"""ACC-05 for the evaluator and for both ways through the index: the truth table of every operator over every type."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from postroom.errors import BadFilter, BadValue
from postroom.filters.columns import columns_of
from postroom.filters.evaluate import matches
from postroom.filters.expression import Operator, Predicate
from postroom.filters.index import SubscriptionIndex
from postroom.filters.text import format_filter, parse
from postroom.message import Context
from postroom.properties import Property
from postroom.values import ValueType
from tests.support.catalogue import COMPARISONS, LADDERS, REFUSED, Comparison

#: What no context and no filter holds.
OUTSIDE: dict[ValueType, list[Any]] = {
    ValueType.STR: ["\ud800", "a\udfffb", "a\0b", "z" * 257, 5, b"a"],
    ValueType.INT: [2**63, -(2**63) - 1, True, 1.0, Decimal(1), "1"],
    ValueType.DECIMAL: [
        *(Decimal(text) for text in ("1E+38", "1E-39", "9" * 39, "1.0000000000000000000000000000000000000001")),
        *(Decimal("NaN"), Decimal("Infinity"), 1.5, True, "1"),
    ],
    ValueType.FLOAT: [float("nan"), float("inf"), float("-inf"), True, "1", Decimal(1)],
    ValueType.BOOL: [0, 1, "true", 1.0],
    ValueType.DATETIME: [datetime(2026, 1, 31), "2026-01-31T12:00:00Z", 0],  # noqa: DTZ001
}


@pytest.fixture(scope="module")
def index() -> SubscriptionIndex:
    """All comparisons at once: none may get into another's way."""
    index = SubscriptionIndex()
    for id, comparison in enumerate(COMPARISONS):
        index.add(id, comparison.filter)
    return index


@pytest.mark.parametrize("comparison", COMPARISONS, ids=str)
def test_the_evaluator(comparison: Comparison) -> None:
    for case in comparison.cases:
        assert matches(comparison.filter, case.context.promoted) is case.holds, case


def test_the_index_message_by_message(index: SubscriptionIndex) -> None:
    for id, comparison in enumerate(COMPARISONS):
        for case in comparison.cases:
            assert index.match_one(case.context.promoted) == ([id] if case.holds else []), (str(comparison), case)


def test_the_index_in_one_batch(index: SubscriptionIndex) -> None:
    cases = [(id, case) for id, comparison in enumerate(COMPARISONS) for case in comparison.cases]
    rows, ids = index.match(columns_of([case.context.promoted for _, case in cases]), len(cases))
    wanted = [(row, id) for row, (id, case) in enumerate(cases) if case.holds]
    assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == wanted


@pytest.mark.parametrize("comparison", COMPARISONS, ids=str)
def test_the_index_alone_with_one_value_for_a_whole_batch(comparison: Comparison) -> None:
    index = SubscriptionIndex()
    index.add(1, comparison.filter)
    for case in comparison.cases:
        rows, _ = index.match(dict(case.context.promoted), 3)
        assert rows.tolist() == ([0, 1, 2] if case.holds else []), case


def test_the_catalogue_as_text() -> None:
    properties = [comparison.prop for comparison in COMPARISONS]
    for comparison in COMPARISONS:
        assert parse(format_filter(comparison.filter), properties) == comparison.filter


def test_the_catalogue_is_complete() -> None:
    """Every operator over every type is there, or is refused."""
    compared = {(one.prop.value_type, one.operator) for one in COMPARISONS}
    assert compared | set(REFUSED) == {(value_type, operator) for value_type in ValueType for operator in Operator}
    for value_type, ladders in LADDERS.items():
        for below, equal, above in ladders:
            there = [value for value in (below, equal, above) if value is not None]
            assert there == sorted(there), value_type


@pytest.mark.parametrize(("value_type", "operator"), REFUSED)
def test_what_a_type_cannot_be_asked_is_refused(value_type: ValueType, operator: Operator) -> None:
    prop = Property("C.X", value_type.python_type)
    value = LADDERS[value_type][0].equal
    with pytest.raises(BadFilter, match=r"C\.X"):
        Predicate(prop, operator, value)


@pytest.mark.parametrize(
    ("value_type", "value"), [(value_type, value) for value_type, values in OUTSIDE.items() for value in values]
)
def test_what_is_outside_a_domain_is_in_no_context_and_in_no_filter(value_type: ValueType, value: object) -> None:
    prop = Property("C.X", value_type.python_type)
    with pytest.raises(BadValue, match=r"C\.X"):
        Context().promote(prop, value)
    with pytest.raises(BadFilter, match=r"C\.X"):
        Predicate(prop, Operator.EQ, value)  # type: ignore[arg-type]


def test_the_two_zeros_are_one() -> None:
    weight = Property("C.Weight", float)
    for filter in (weight == 0.0, weight == -0.0, weight >= -0.0, weight <= 0.0):
        for zero in (0.0, -0.0):
            context = Context().promote(weight, zero)
            index = SubscriptionIndex()
            index.add(1, filter)
            assert matches(filter, context.promoted)
            assert index.match_one(context.promoted) == [1]
            assert index.match(columns_of([context.promoted]), 1)[1].tolist() == [1]
