"""The catalogue of comparisons (ACC-05): one truth table that every matcher has to pass.

    for comparison in COMPARISONS:
        for case in comparison.cases:
            assert matches(comparison.filter, case.promoted) is case.holds

Each comparison has a property of its own, so that all of them can stand in one MessageBox, and all cases in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from postroom.filters.expression import Filter, Operator, Predicate
from postroom.message import Context
from postroom.properties import Property
from postroom.values import Value, ValueType

#: Whether the operator matches a value below the value of the filter, equal to it, above it, no value, a written value.
TRUTH = {
    #                    below  equal  above  missing written only
    Operator.EQ:        (False, True,  False, False,  False),
    Operator.LT:        (True,  False, False, False,  False),
    Operator.LE:        (True,  True,  False, False,  False),
    Operator.GT:        (False, False, True,  False,  False),
    Operator.GE:        (False, True,  True,  False,  False),
    Operator.NE:        (True,  False, True,  False,  False),
    Operator.EXISTS:    (True,  True,  True,  False,  False),
}  # fmt: skip

SITUATIONS = ("below", "equal", "above", "missing", "written only")


class Ladder(NamedTuple):
    """A value that filters compare with, and the values directly below and above it. None at the end of the domain."""

    below: Value | None
    equal: Value
    above: Value | None


_LARGEST = 1.7976931348623157e308
_MICROSECOND = timedelta(microseconds=1)
_NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

#: The first ladder of each type has usual values. The others are at the limits of the domain.
LADDERS: dict[ValueType, tuple[Ladder, ...]] = {
    ValueType.STR: (
        Ladder("ABC", "abc", "abcd"),
        Ladder("10", "9", "a"),  # as text, not as numbers
        Ladder("Z", "a", "é"),  # by code point: neither by language nor without regard to case
        Ladder("\uffff", "\U00010000", "\U0010ffff"),  # UTF-16 would have them the other way round
        Ladder("", "\x01", "\t"),
        Ladder("e\u0301", "é", "ê"),  # one letter written in two ways is two texts
        Ladder("a", "a ", "a  "),  # blanks count
        Ladder("z" * 255, "z" * 256, None),
        Ladder("\U0001f600" * 255, "\U0001f600" * 256, "\U0001f601"),
    ),
    ValueType.INT: (
        Ladder(9, 10, 11),
        Ladder(-1, 0, 1),
        Ladder(2**53, 2**53 + 1, 2**53 + 2),  # a float would make them one
        Ladder(None, -(2**63), 1 - 2**63),
        Ladder(2**63 - 2, 2**63 - 1, None),
    ),
    ValueType.DECIMAL: (
        Ladder(Decimal("9.99"), Decimal("10.00"), Decimal("10.01")),
        Ladder(Decimal("1.0999"), Decimal("1.1"), Decimal("1.1000000000000000000000000000000000001")),
        Ladder(Decimal("-1E-38"), Decimal(0), Decimal("1E-38")),
        Ladder(None, Decimal(-(10**38) + 1), Decimal(-(10**38) + 2)),
        Ladder(Decimal(10**38 - 2), Decimal(10**38 - 1), None),
        Ladder(Decimal("9E+36"), Decimal("1E+37"), Decimal(10**37 + 1)),
    ),
    ValueType.FLOAT: (
        Ladder(9.5, 10.0, 10.5),
        Ladder(0.1, 0.30000000000000004, 0.3000000000000001),
        Ladder(-5e-324, 0.0, 5e-324),
        Ladder(None, -_LARGEST, -1.7976931348623155e308),
        Ladder(1.7976931348623155e308, _LARGEST, None),
    ),
    ValueType.BOOL: (Ladder(False, True, None), Ladder(None, False, True)),
    ValueType.DATETIME: (
        Ladder(_NOON - _MICROSECOND, _NOON, _NOON + _MICROSECOND),
        Ladder(
            datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ),
        Ladder(None, _FIRST, _FIRST + _MICROSECOND),
        Ladder(_LAST - _MICROSECOND, _LAST, None),
    ),
}

#: A mask, and for values whether they have a bit in common with it.
BITS: dict[int, dict[int, bool]] = {
    4: {3: False, 4: True, 5: True, 6: True, 8: False, -1: True, -8: False, 0: False},
    0: {0: False, 1: False, -1: False},
    -1: {0: False, 1: True, -(2**63): True, 2**63 - 1: True},
    -(2**63): {2**63 - 1: False, -1: True, -(2**63): True},
    1 << 62: {2**63 - 1: True, -(2**63): False},
}

#: What a type cannot be asked.
REFUSED = [
    *((ValueType.BOOL, operator) for operator in (Operator.LT, Operator.LE, Operator.GT, Operator.GE)),
    *((value_type, Operator.BITAND) for value_type in ValueType if value_type is not ValueType.INT),
]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A message, and whether the comparison matches it."""

    situation: str
    context: Context
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One predicate with all of its cases."""

    prop: Property
    operator: Operator
    value: Value | None
    cases: tuple[Case, ...]

    @property
    def filter(self) -> Filter:
        return Filter(((Predicate(self.prop, self.operator, self.value),),))

    def __str__(self) -> str:
        return f"{self.prop.name} {self.operator.symbol}"


def _along(value_type: ValueType, number: int, ladder: Ladder, operator: Operator) -> Comparison:
    prop = Property(f"{value_type.name.title()}{number}_{operator.name.title()}", value_type.python_type, namespace="C")
    cases = []
    for situation, value, holds in zip(
        SITUATIONS, (*ladder, None, ladder.equal), TRUTH[operator], strict=True
    ):  # fmt: skip
        if situation == "missing":
            cases.append(Case(situation=situation, context=Context(), holds=holds))
        elif value is not None:
            kept = Context().write(prop, value) if situation == "written only" else Context().promote(prop, value)
            cases.append(Case(situation=situation, context=kept, holds=holds))
    constant = None if operator is Operator.EXISTS else ladder.equal
    return Comparison(prop=prop, operator=operator, value=constant, cases=tuple(cases))


def _of_bits(number: int, mask: int, values: dict[int, bool]) -> Comparison:
    prop = Property(f"Bits{number}", int, namespace="C")
    cases = [
        Case(situation=str(value), context=Context().promote(prop, value), holds=holds)
        for value, holds in values.items()
    ]
    cases.append(Case(situation="missing", context=Context(), holds=False))
    cases.append(Case(situation="written only", context=Context().write(prop, -1), holds=False))
    return Comparison(prop=prop, operator=Operator.BITAND, value=mask, cases=tuple(cases))


#: The whole catalogue.
COMPARISONS: tuple[Comparison, ...] = (
    *(
        _along(value_type, number, ladder, operator)
        for value_type, ladders in LADDERS.items()
        for number, ladder in enumerate(ladders)
        for operator in TRUTH
        if (value_type, operator) not in REFUSED
    ),
    *(_of_bits(number, mask, values) for number, (mask, values) in enumerate(BITS.items())),
)
