"""Strategies of hypothesis for properties, values, filters and contexts, with the limits of every value domain."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import strategies as st

from postroom.filters.expression import Filter, Operator, Predicate
from postroom.properties import Property
from postroom.values import Value, ValueType
from tests.support.catalogue import LADDERS

_MORE: dict[ValueType, list[Value]] = {
    ValueType.STR: ["a", "A", "ab", "b", "é", " ", "'", '"', "\\", "\n", "true", "\u200b", "\U0001f600"],
    ValueType.INT: [-2, 1, 2, 3, 4, 7, 8],
    ValueType.DECIMAL: [Decimal(text) for text in ("-1E+37", "-1.5", "0.1", "1", "1.10", "1E+1")],
    ValueType.FLOAT: [-1.5, 0.1, 1.0, 1e22, 2.0**53],
    ValueType.BOOL: [],
    ValueType.DATETIME: [datetime(2000, 2, 29, 1, 30, tzinfo=UTC)],
}

#: Values that are used again and again, so that constants and contexts meet: the edges, their neighbours, some more.
POOLS: dict[ValueType, list[Value]] = {
    value_type: list(
        dict.fromkeys(
            [value for ladder in ladders for value in ladder if value is not None and value != ""] + _MORE[value_type]
        )
    )
    for value_type, ladders in LADDERS.items()
}

PROPERTIES = [
    Property(f"{value_type.name.title()}{number}", value_type.python_type, namespace=namespace)
    for value_type in ValueType
    for number, namespace in enumerate(("Orders", "http://example.org/{partners}"))
]


def operators_of(value_type: ValueType) -> list[Operator]:
    """Return the operators that are allowed for this type."""
    if value_type is ValueType.BOOL:
        return [Operator.EQ, Operator.NE, Operator.EXISTS]
    return [op for op in Operator if op is not Operator.BITAND or value_type is ValueType.INT]


@st.composite
def _decimals(draw: st.DrawFn) -> Decimal:
    digits = draw(st.integers(1, 38))
    unscaled = draw(st.integers(1 - 10**digits, 10**digits - 1))
    places = draw(st.integers(digits - 38, 38))
    return Decimal(unscaled) and Decimal(f"{unscaled}E{-places}")


def values(value_type: ValueType) -> st.SearchStrategy[Value]:
    """Generate values of the domain, mostly from a small pool."""
    text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
    arbitrary: dict[ValueType, st.SearchStrategy[Value]] = {
        ValueType.STR: text,
        ValueType.INT: st.integers(-(2**63), 2**63 - 1),
        ValueType.DECIMAL: _decimals(),
        ValueType.FLOAT: st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0),
        ValueType.BOOL: st.booleans(),
        ValueType.DATETIME: st.datetimes(timezones=st.just(UTC)),
    }
    pool = st.sampled_from(POOLS[value_type])
    return st.one_of(pool, pool, pool, arbitrary[value_type])


def odd_properties() -> st.SearchStrategy[Property]:
    """Generate names that are keywords of the filter language, and namespaces with every allowed character."""
    names = st.sampled_from(["X", "and", "Or", "exists", "TRUE", "not", "_", "_1", "E5", "x" * 300])
    anything = st.text(st.characters(exclude_characters="#"), min_size=1, max_size=6)
    known = st.sampled_from(["or", "and.not", "true", "BTS", "FILE", "a.b", "a.", ".a", "1a", "é", "{", "}", "\\", "'"])
    types = st.sampled_from(list(ValueType)).map(lambda value_type: value_type.python_type)
    return st.builds(Property, names, types, namespace=known | anything)


@st.composite
def predicates(draw: st.DrawFn, properties: st.SearchStrategy[Property] | None = None) -> Predicate:
    property = draw(st.sampled_from(PROPERTIES) if properties is None else properties)
    operator = draw(st.sampled_from(operators_of(property.value_type)))
    value = None if operator is Operator.EXISTS else draw(values(property.value_type))
    return Predicate(property, operator, value)


def filters() -> st.SearchStrategy[Filter]:
    groups = st.lists(predicates(), min_size=1, max_size=4).map(tuple)
    return st.lists(groups, min_size=1, max_size=3).map(lambda groups: Filter(tuple(groups)))


@st.composite
def contexts(draw: st.DrawFn) -> dict[str, Value]:
    """Generate the promoted values of a message. A str may be empty."""
    chosen = draw(st.lists(st.sampled_from(PROPERTIES), unique=True, max_size=8))
    return {
        p.key: draw(values(p.value_type) | st.just("") if p.value_type is ValueType.STR else values(p.value_type))
        for p in chosen
    }


def misfits() -> st.SearchStrategy[dict[str, Value]]:
    """Generate promoted values with other types than their properties."""
    value = st.sampled_from(list(ValueType)).flatmap(values)
    return st.dictionaries(st.sampled_from(PROPERTIES).map(lambda property: property.key), value, max_size=6)
