"""The specification of filters: a slow and obvious matcher that every other matcher is tested against.

A predicate holds only for a promoted property with a value of the property's own type. So a missing property matches
neither ``X == 5`` nor ``X != 5`` (PRED-05).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from postroom.filters.expression import Filter, Operator, Predicate
from postroom.values import Value

_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.NE: operator.ne,
    Operator.EXISTS: lambda value, _: True,
    Operator.BITAND: lambda value, mask: value & mask != 0,
}


def matches(filter: Filter, promoted: Mapping[str, Value]) -> bool:
    """Return True if a message with these promoted values, by property key, matches the filter."""
    return any(all(predicate_holds(predicate, promoted) for predicate in group) for group in filter.groups)


def predicate_holds(predicate: Predicate, promoted: Mapping[str, Value]) -> bool:
    """Return True if the predicate holds. Strings compare by code point, datetimes as instants, numbers by value."""
    value = promoted.get(predicate.property.key)
    if type(value) is not predicate.property.value_type.python_type:
        return False
    return _COMPARE[predicate.operator](value, predicate.value)
