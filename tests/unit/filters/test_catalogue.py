"""ACC-05: evaluator and index agree with the truth table of every operator and type."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from postroom.errors import BadFilter, BadValue
from postroom.filters.columns import build_columns
from postroom.filters.evaluate import matches
from postroom.filters.expression import Operator, Predicate
from postroom.filters.index import SubscriptionIndex
from postroom.filters.text import format_filter, parse
from postroom.message import Context
from postroom.properties import Property
from postroom.values import ValueType
from tests.support.catalogue import COMPARISONS, LADDERS, REFUSED, Comparison

#: Values outside the domain of their type.
OUTSIDE: dict[ValueType, list[Any]] = {
    ValueType.STR: ["\ud800", "a\udfffb", "a\0b", "z" * 257, 5, b"a"],
    ValueType.INT: [2**63, -(2**63) - 1, True, 1.0, Decimal(1), "1"],
    ValueType.DECIMAL: [
        *(Decimal(text) for text in ("1E+38", "1E-39", "9" * 39, "1.0000000000000000000000000000000000000001")),
        Decimal("NaN"),
        Decimal("Infinity"),
        1.5,
        True,
        "1",
    ],
    ValueType.FLOAT: [float("nan"), float("inf"), float("-inf"), True, "1", Decimal(1)],
    ValueType.BOOL: [0, 1, "true", 1.0],
    ValueType.DATETIME: [datetime(2026, 1, 31), "2026-01-31T12:00:00Z", 0],  # noqa: DTZ001
}


@pytest.fixture(scope="module")
def index() -> SubscriptionIndex:
    """Return an index with all comparisons, which must not affect each other."""
    index = SubscriptionIndex()
    for id, comparison in enumerate(COMPARISONS):
        index.add(id, comparison.filter)
    return index


@pytest.mark.parametrize("comparison", COMPARISONS, ids=str)
def test_the_evaluator_agrees_with_the_catalogue(comparison: Comparison) -> None:
    for case in comparison.cases:
        assert matches(comparison.filter, case.context.promoted) is case.holds, case


def test_match_one_agrees_with_the_catalogue(index: SubscriptionIndex) -> None:
    for id, comparison in enumerate(COMPARISONS):
        for case in comparison.cases:
            assert index.match_one(case.context.promoted) == ([id] if case.holds else []), (str(comparison), case)


def test_match_agrees_with_the_catalogue_for_one_batch(index: SubscriptionIndex) -> None:
    cases = [(id, case) for id, comparison in enumerate(COMPARISONS) for case in comparison.cases]
    rows, ids = index.match(build_columns([case.context.promoted for _, case in cases]), len(cases))
    expected = [(row, id) for row, (id, case) in enumerate(cases) if case.holds]
    assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == expected


@pytest.mark.parametrize("comparison", COMPARISONS, ids=str)
def test_match_agrees_with_the_catalogue_for_a_constant_column(comparison: Comparison) -> None:
    index = SubscriptionIndex()
    index.add(1, comparison.filter)
    for case in comparison.cases:
        rows, _ = index.match(dict(case.context.promoted), 3)
        assert rows.tolist() == ([0, 1, 2] if case.holds else []), case


def test_every_filter_of_the_catalogue_can_be_formatted_and_parsed() -> None:
    properties = [comparison.prop for comparison in COMPARISONS]
    for comparison in COMPARISONS:
        assert parse(format_filter(comparison.filter), properties) == comparison.filter


def test_the_catalogue_has_every_operator_and_type() -> None:
    """Every combination is in the catalogue or is rejected."""
    compared = {(one.prop.value_type, one.operator) for one in COMPARISONS}
    assert compared | set(REFUSED) == {(value_type, operator) for value_type in ValueType for operator in Operator}
    for value_type, ladders in LADDERS.items():
        for below, equal, above in ladders:
            values = [value for value in (below, equal, above) if value is not None]
            assert values == sorted(values), value_type


@pytest.mark.parametrize(("value_type", "operator"), REFUSED)
def test_an_operator_that_its_type_does_not_support_is_rejected(value_type: ValueType, operator: Operator) -> None:
    prop = Property("C.X", value_type.python_type)
    value = LADDERS[value_type][0].equal
    with pytest.raises(BadFilter, match=r"C\.X"):
        Predicate(prop, operator, value)


@pytest.mark.parametrize(
    ("value_type", "value"), [(value_type, value) for value_type, values in OUTSIDE.items() for value in values]
)
def test_a_value_outside_its_domain_is_rejected_in_contexts_and_filters(value_type: ValueType, value: object) -> None:
    prop = Property("C.X", value_type.python_type)
    with pytest.raises(BadValue, match=r"C\.X"):
        Context().promote(prop, value)
    with pytest.raises(BadFilter, match=r"C\.X"):
        Predicate(prop, Operator.EQ, value)  # type: ignore[arg-type]


def test_negative_zero_equals_zero() -> None:
    weight = Property("C.Weight", float)
    for filter in (weight == 0.0, weight == -0.0, weight >= -0.0, weight <= 0.0):
        for zero in (0.0, -0.0):
            context = Context().promote(weight, zero)
            index = SubscriptionIndex()
            index.add(1, filter)
            assert matches(filter, context.promoted)
            assert index.match_one(context.promoted) == [1]
            assert index.match(build_columns([context.promoted]), 1)[1].tolist() == [1]
