"""Filters of Python expressions, and the errors of wrong expressions."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from operator import or_

import pytest

from postroom.errors import BadFilter
from postroom.filters.expression import MAX_GROUPS, Filter, Operator, Predicate, all_of, any_of
from postroom.properties import Property

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
Weight = Property("Orders.Weight", float)
Paid = Property("Orders.Paid", bool)
Due = Property("Orders.Due", datetime)


def only(filter: Filter) -> Predicate:
    ((predicate,),) = filter.groups
    return predicate


@pytest.mark.parametrize(
    ("filter", "operator", "value"),
    [
        (Region == "EU", Operator.EQ, "EU"),
        (Region != "EU", Operator.NE, "EU"),
        (Priority < 3, Operator.LT, 3),
        (Priority <= 3, Operator.LE, 3),
        (Priority > 3, Operator.GT, 3),
        (Priority >= 3, Operator.GE, 3),
        (Priority.exists(), Operator.EXISTS, None),
        (Priority.bitand(4), Operator.BITAND, 4),
    ],
)
def test_every_operator_returns_one_predicate(filter: Filter, operator: Operator, value: object) -> None:
    assert (only(filter).operator, only(filter).value) == (operator, value)


def test_operators_have_the_stored_codes() -> None:
    """PRED-04."""
    assert [operator.value for operator in Operator] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert Operator.GE.symbol == ">="


def test_a_constant_can_be_the_left_operand() -> None:
    assert (Priority > 10) == (Priority > 10)
    assert (Decimal(5) >= Total) == (Total <= 5)


def test_and_binds_tighter_than_or() -> None:
    a, b, c = Region == "EU", Priority == 1, Total >= 10
    assert (a & b | c).groups == ((only(a), only(b)), (only(c),))


def test_an_or_under_an_and_is_multiplied_out() -> None:
    """FLT-01."""
    a, b, c, d = Region == "EU", Region == "US", Priority == 1, Priority == 2
    assert ((a | b) & (c | d)).groups == (
        (only(a), only(c)),
        (only(a), only(d)),
        (only(b), only(c)),
        (only(b), only(d)),
    )


def test_repeated_predicates_and_groups_are_dropped() -> None:
    a, b = Region == "EU", Priority == 1
    assert (a & b & a).groups == ((only(a), only(b)),)
    assert (a & b | b & a).groups == ((only(a), only(b)),)
    assert ((Total == Decimal("1.0")) | (Total == 1)).groups == ((only(Total == Decimal("1.0")),),)


def test_many_filters_are_joined_at_once() -> None:
    filters = [Priority == i for i in range(50)]
    assert any_of(filters) == reduce(or_, filters)
    assert all_of([Region == "EU", Priority == 1]) == (Region == "EU") & (Priority == 1)


def test_the_same_property_twice_in_a_group_is_a_range() -> None:
    assert len(((Priority >= 10) & (Priority < 20)).groups[0]) == 2


@pytest.mark.parametrize(
    ("value", "stored"),
    [(10_000, Decimal(10_000)), (Decimal("0.10"), Decimal("0.10"))],
)
def test_a_decimal_property_takes_ints_and_decimals(value: object, stored: Decimal) -> None:
    assert only(Total == value).value == stored
    assert type(only(Total == value).value) is Decimal


def test_a_float_property_takes_an_int_that_is_exactly_a_float() -> None:
    assert type(only(Weight >= 2**53).value) is float
    with pytest.raises(BadFilter, match=r"Orders\.Weight >= 9007199254740993"):
        _ = Weight >= 2**53 + 1


def test_a_datetime_is_kept_as_an_instant() -> None:
    assert only(Due == datetime.fromisoformat("2026-01-31T12:00:00+02:00")).value == datetime(
        2026, 1, 31, 10, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Region == 5, r"Orders\.Region == 5: 5 is not a str"),
        (lambda: Region == "", r"empty string"),
        (lambda: Region != "", r"empty string"),
        (lambda: Region == "x" * 257, r"at most 256 characters"),
        (lambda: Region == "a\0b", r"NUL"),
        (lambda: Region == "\ud800", r"surrogate"),
        (lambda: Region == None, r"no nulls.*\n.*exists"),  # noqa: E711
        (lambda: Priority == 9.5, r"Orders\.Priority == 9\.5: 9\.5 is not an int\.\n.*whole number"),
        (lambda: Priority == 9.0, r"not an int"),
        (lambda: Priority == True, r"True is not an int"),  # noqa: E712
        (lambda: Priority == Decimal(9), r"not an int"),
        (lambda: Priority == "9", r"not an int"),
        (lambda: Priority >= 2**63, r"64-bit"),
        (lambda: Total >= 9.99, r'Orders\.Total >= 9\.99.*\n.*Decimal\("9\.99"\)'),
        (lambda: Total == Decimal("NaN"), r"finite"),
        (lambda: Total == 10**38, r"38 digits"),
        (lambda: Weight == float("inf"), r"finite"),
        (lambda: Weight == Decimal(1), r"not a float"),
        (lambda: Paid > True, r"Orders\.Paid > true: a bool can only be compared with == and !="),
        (lambda: Paid == 1, r"1 is not a bool"),
        (lambda: Due < datetime(2026, 1, 31), r"no time zone"),  # noqa: DTZ001
        (lambda: Region.bitand(4), r"Orders\.Region & 4: a bitwise AND needs an int property, and this one is str"),
        (lambda: Paid.bitand(True), r"needs an int property"),
        (lambda: Priority.bitand(4.0), r"not an int"),
        (lambda: Priority.bitand(True), r"not an int"),
        (lambda: Priority < Total, r"compares a property with a constant"),
        (lambda: Predicate(Region, Operator.EXISTS, "EU"), r"exists\(Orders\.Region\) takes no value"),
        (lambda: Filter(()), r"no groups"),
        (lambda: Filter(((),)), r"no predicates"),
    ],
)
def test_a_wrong_comparison_is_rejected_with_property_and_value(build: object, says: str) -> None:
    """PRED-11, PRED-16."""
    with pytest.raises(BadFilter, match=says):
        build()  # type: ignore[operator]


def test_a_long_value_is_truncated_in_the_error() -> None:
    with pytest.raises(BadFilter) as caught:
        _ = Region == "x" * 100_000
    assert len(str(caught.value)) < 400


def test_the_number_of_groups_is_limited() -> None:
    tenfold = any_of(Priority == i for i in range(10))
    hundredfold = tenfold & any_of(Total == i for i in range(10))
    with pytest.raises(BadFilter, match=f"{MAX_GROUPS:,} groups"):
        _ = hundredfold & any_of(Region == str(i) for i in range(11))
    long = all_of(Region != str(i) for i in range(200))
    with pytest.raises(BadFilter, match="predicates"):
        _ = hundredfold & long


def test_python_and_or_and_chained_comparisons_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"& and \|"):
        _ = (Region == "EU") and (Priority == 1)
    with pytest.raises(TypeError, match="range as"):
        _ = 1 < Priority < 5
    with pytest.raises(TypeError):
        _ = Region in ["EU", "US"]


def test_missing_parentheses_are_reported() -> None:
    with pytest.raises(TypeError, match="parentheses around each comparison"):
        _ = Priority == 1 & Region == "EU"
    with pytest.raises(TypeError, match="parentheses"):
        _ = (Priority == 1) | Region
    with pytest.raises(TypeError):
        _ = (Priority == 1) & True  # type: ignore[operator]


def test_comparing_two_properties_tests_their_identity() -> None:
    assert (Property("Orders.Region", str) == Region) is True
    assert (Property("Orders.Region", int) == Region) is False
    assert (Property("Orders.Region", int) != Region) is True
    assert Property("Region", str, namespace="Orders") == Region
    assert {Region: 1}[Property("Orders.Region", str)] == 1
    assert Region in [Total, Region]


def test_filters_can_be_pickled() -> None:
    filter = (Total >= 10_000) & (Region != "TEST") | Priority.exists() | (Due < datetime(2026, 1, 1, tzinfo=UTC))
    assert pickle.loads(pickle.dumps(filter)) == filter


def test_the_repr_of_a_filter_shows_its_comparisons() -> None:
    assert "Property('Orders.Region', str)" in repr(Region == "EU")


@pytest.mark.parametrize("inverted", [lambda: ~(Region == "EU"), lambda: ~Region])
def test_a_filter_cannot_be_negated(inverted: Callable[[], object]) -> None:
    """PRED-07."""
    with pytest.raises(TypeError, match="Write the opposite comparison"):
        inverted()
