"""Filters: an OR of AND-groups of predicates, built from Python expressions over properties.

    (Total >= 10_000) & (Region != "TEST") | (Priority == 1)

Every expression is converted to this form (FLT-01). A value is checked against its property when the predicate is
created, so every existing filter can be stored, indexed and evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import IntEnum
from typing import NoReturn, Protocol, runtime_checkable

from postroom.errors import BadFilter, BadValue
from postroom.values import Value, ValueType, check_promoted, check_value, value_to_text

#: The maximum size of a filter after its conversion to an OR of AND-groups.
MAX_GROUPS = 1_024
MAX_PREDICATES = 16_384

#: Every int up to this one has an exact float.
_EXACT_IN_FLOAT = 2**53
_report: ContextVar[Callable[[BadFilter], None] | None] = ContextVar("report", default=None)


class Operator(IntEnum):
    """The comparison of a predicate. The numbers are stored in the MessageBox and never change (PRED-04)."""

    EQ = 0
    LT = 1
    LE = 2
    GT = 3
    GE = 4
    NE = 5
    EXISTS = 6
    BITAND = 7

    @property
    def symbol(self) -> str:
        """The operator in a text filter: ``==``, ``exists``, ``&``."""
        return _SYMBOLS[self]


_SYMBOLS = {
    Operator.EQ: "==",
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.GT: ">",
    Operator.GE: ">=",
    Operator.NE: "!=",
    Operator.EXISTS: "exists",
    Operator.BITAND: "&",
}


NO_NOT = 'Filters have no operator not. Write the opposite comparison, as in Region != "EU".'


@runtime_checkable
class Comparable(Protocol):
    """The property of a predicate, as filters see it (``postroom.properties.Property``)."""

    namespace: str
    name: str
    key: str
    value_type: ValueType

    @property
    def dotted_name(self) -> str:
        """The full name: ``Orders.Region``, or ``{http://example.com/invoices}Number``."""

    def canonical(self, value: Value) -> Value:
        """Return the form in which contexts and filters store a value."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """One comparison of a property with a constant: ``Predicate(Region, Operator.EQ, "EU")``."""

    property: Comparable
    operator: Operator
    value: Value | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _check_operand(self.property, self.operator, self.value))


Group = tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """An OR of AND-groups. A message matches if every predicate of at least one group holds.

    Repeated predicates of a group and repeated groups are removed.
    """

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", _remove_duplicates(self.groups))

    def __and__(self, other: Filter) -> Filter:
        return all_of((self, other)) if isinstance(other, Filter) else NotImplemented

    def __or__(self, other: Filter) -> Filter:
        return any_of((self, other)) if isinstance(other, Filter) else NotImplemented

    def __invert__(self) -> NoReturn:
        raise TypeError(NO_NOT)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "A filter is neither true nor false. Combine filters with & and | and put parentheses around each "
            'comparison, as in (Region == "EU") & (Total >= 10); write a range as (Total >= 10) & (Total < 20).'
        )


def any_of(filters: Iterable[Filter]) -> Filter:
    """Join filters with OR. Equivalent to ``|``, and faster for many filters."""
    return Filter(tuple(group for each in filters for group in each.groups))


def all_of(filters: Iterable[Filter]) -> Filter:
    """Join filters with AND. Equivalent to ``&``."""
    groups: tuple[Group, ...] = ((),)
    for each in filters:
        groups = _remove_duplicates(left + right for left in groups for right in each.groups)
    return Filter(groups)


def compare(property: Comparable, operator: Operator, value: object) -> Filter:
    """Return the filter of one predicate. While an application's file is read, a wrong comparison is only reported."""
    try:
        return Filter(((Predicate(property, operator, value),),))  # type: ignore[arg-type]
    except BadFilter as error:
        if not report_bad_filter(error):
            raise
        # Any filter will do: the file is rejected after it has been read completely.
        return Filter(((Predicate(property, Operator.EXISTS),),))


def _remove_duplicates(groups: Iterable[Group]) -> tuple[Group, ...]:
    kept: dict[frozenset[Predicate], Group] = {}
    predicates = 0
    for group in groups:
        distinct = tuple(dict.fromkeys(group))
        if not distinct:
            raise BadFilter("A group of a filter has no predicates.", hint="Such a group would match every message.")
        if kept.setdefault(frozenset(distinct), distinct) is distinct:
            predicates += len(distinct)
        if len(kept) > MAX_GROUPS or predicates > MAX_PREDICATES:
            raise BadFilter(
                f"The filter grows beyond {MAX_GROUPS:,} groups or {MAX_PREDICATES:,} predicates.",
                why="It is an OR of AND-groups: (a | b) & (c | d) becomes four groups, and each & multiplies them.",
                hint="Split it over several subscriptions, or promote a property that needs one comparison.",
            )
    if not kept:
        raise BadFilter("A filter has no groups.", hint="Omit the filter if nothing is to be matched.")
    return tuple(kept.values())


def _check_operand(property: Comparable, operator: Operator, value: object) -> Value | None:
    """Return ``value`` in the form that predicates of this property store. Raise BadFilter if it does not fit."""
    value_type = property.value_type
    written = f"{property.dotted_name} {operator.symbol} {_shorten(value)}"
    if operator is Operator.EXISTS:
        if value is not None:
            raise BadFilter(f"exists({property.dotted_name}) takes no value, and got {value!r}.")
        return None
    if value is None:
        raise BadFilter(
            f"{written}: there are no nulls in a context.",
            hint="Use exists() to test whether a message has a property. There is no test for its absence.",
        )
    if operator is Operator.BITAND and value_type is not ValueType.INT:
        raise BadFilter(f"{written}: a bitwise AND needs an int property, and this one is {_format_type(value_type)}.")
    if value_type is ValueType.BOOL and operator not in (Operator.EQ, Operator.NE):
        raise BadFilter(f"{written}: a bool can only be compared with == and !=.")
    if value_type is ValueType.FLOAT and type(value) is int and abs(value) <= _EXACT_IN_FLOAT:
        value = float(value)
    try:
        checked = check_promoted(property.canonical(check_value(value_type, value)))
    except BadValue as error:
        if isinstance(value, Comparable):
            compared = f"{property.dotted_name} {operator.symbol} {value.dotted_name}"
            raise BadFilter(f"{compared}: a filter compares a property with a constant.") from None
        raise BadFilter(f"{written}: {error.what}", hint=_make_hint(value_type, value)) from None
    if checked == "":
        raise BadFilter(
            f"{written}: a filter may not compare with an empty string.",
            hint="Use exists() for a property that is there, empty or not.",
        )
    return checked


def _format_type(value_type: ValueType) -> str:
    return value_type.python_type.__name__


def _shorten(value: object) -> str:
    """Return the value as a text filter contains it, if it can."""
    text = value_to_text(value) if isinstance(value, Decimal | bool | datetime) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _make_hint(value_type: ValueType, value: object) -> str:
    if type(value) is value_type.python_type:
        return ""
    if value_type is ValueType.DECIMAL and type(value) is float:
        return f'Write Decimal("{value}"): a float is rarely the decimal number that it looks like.'
    if value_type is ValueType.INT and type(value) is float:
        return "Compare an int property with a whole number; only text values are rounded."
    return f"The property is of type {_format_type(value_type)}."


@contextmanager
def collect_bad_filters(report: Callable[[BadFilter], None]) -> Iterator[None]:
    """Within this context, pass each wrong comparison to ``report`` and replace it with some filter instead of raising.

    The caller must reject the file if anything was reported.
    """
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def report_bad_filter(error: BadFilter) -> bool:
    """Report the error to the current collector. Return False if there is none."""
    report = _report.get()
    if report is not None:
        report(error)
    return report is not None
