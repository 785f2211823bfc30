"""Choose the predicate by which messages find an AND-group: the most selective one, called its *access*.

    choose_access(((Region == "EU") & (Total >= 10)).groups[0])     # the equality on Region

The choice depends on the group alone, so it can be stored when a subscription is enlisted. It also decides in which of
the MessageBox's ten predicate tables each predicate of the group is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from postroom.filters.expression import Group, Operator, Predicate
from postroom.values import ValueType


class Selectivity(IntEnum):
    """The kinds of access, ordered by the number of candidates that they are expected to leave, fewest first.

    Text identifies things (message types, ports, regions); numbers repeat more often. A bool halves the messages at
    best, so any interval is better. PRESENCE makes a candidate of every message that has the property.
    """

    TEXT_EQUALITY = 0
    EQUALITY = 1
    INTERVAL = 2
    ONE_SIDED = 3
    BOOL_EQUALITY = 4
    PRESENCE = 5


_EQUALITIES = (Selectivity.TEXT_EQUALITY, Selectivity.EQUALITY, Selectivity.BOOL_EQUALITY)


class PredicateTable(IntEnum):
    """The MessageBox's predicate tables (PRED-01). The numbers are stored in it; they never change."""

    BITWISE_AND_PREDICATES = 1
    EQUALS_PREDICATES = 2
    EQUALS_PREDICATES_2ND_PASS = 3
    EXISTS_PREDICATES = 4
    FIRST_PASS_PREDICATES = 5
    GREATER_THAN_OR_EQUALS_PREDICATES = 6
    GREATER_THAN_PREDICATES = 7
    LESS_THAN_OR_EQUALS_PREDICATES = 8
    LESS_THAN_PREDICATES = 9
    NOT_EQUALS_PREDICATES = 10


_BY_OPERATOR = {
    Operator.LT: PredicateTable.LESS_THAN_PREDICATES,
    Operator.LE: PredicateTable.LESS_THAN_OR_EQUALS_PREDICATES,
    Operator.GT: PredicateTable.GREATER_THAN_PREDICATES,
    Operator.GE: PredicateTable.GREATER_THAN_OR_EQUALS_PREDICATES,
    Operator.NE: PredicateTable.NOT_EQUALS_PREDICATES,
    Operator.EXISTS: PredicateTable.EXISTS_PREDICATES,
    Operator.BITAND: PredicateTable.BITWISE_AND_PREDICATES,
}


@dataclass(frozen=True, kw_only=True)
class Access:
    """The predicate that a group is indexed by. An interval has both of its bounds."""

    selectivity: Selectivity
    predicates: tuple[Predicate, ...]

    @property
    def is_equality(self) -> bool:
        return self.selectivity in _EQUALITIES


def choose_access(group: Group) -> Access:
    """Return the most selective access to ``group``. Among equals, the first in the filter wins."""
    return min(_list_accesses(group), key=lambda access: access.selectivity)


def _list_accesses(group: Group) -> Iterator[Access]:
    for predicate in group:
        value_type = predicate.property.value_type
        match predicate.operator:
            case Operator.EQ if value_type is ValueType.STR:
                yield Access(selectivity=Selectivity.TEXT_EQUALITY, predicates=(predicate,))
            case Operator.EQ if value_type is ValueType.BOOL:
                yield Access(selectivity=Selectivity.BOOL_EQUALITY, predicates=(predicate,))
            case Operator.EQ:
                yield Access(selectivity=Selectivity.EQUALITY, predicates=(predicate,))
            case Operator.GT | Operator.GE:
                upper = _find_bound(group, predicate, (Operator.LT, Operator.LE))
                yield _make_interval(predicate, upper)
            case Operator.LT | Operator.LE:
                lower = _find_bound(group, predicate, (Operator.GT, Operator.GE))
                yield _make_interval(predicate, lower)
            case _:
                yield Access(selectivity=Selectivity.PRESENCE, predicates=(predicate,))


def _find_bound(group: Group, bound: Predicate, operators: tuple[Operator, ...]) -> Predicate | None:
    """Return the opposite bound on the same property, if the group has one."""
    return next((p for p in group if p.operator in operators and p.property == bound.property), None)


def _make_interval(bound: Predicate, other: Predicate | None) -> Access:
    if other is None:
        return Access(selectivity=Selectivity.ONE_SIDED, predicates=(bound,))
    return Access(selectivity=Selectivity.INTERVAL, predicates=(bound, other))


def choose_predicate_table(predicate: Predicate, access: Access) -> PredicateTable:
    """Return the table that stores ``predicate``, given the access of its group."""
    if predicate.operator is not Operator.EQ:
        return _BY_OPERATOR[predicate.operator]
    if not access.is_equality:
        return PredicateTable.EQUALS_PREDICATES
    if predicate in access.predicates:
        return PredicateTable.FIRST_PASS_PREDICATES
    return PredicateTable.EQUALS_PREDICATES_2ND_PASS


def choose_predicate_tables(group: Group) -> tuple[PredicateTable, ...]:
    """Return the table of each predicate of ``group``, in the group's order."""
    access = choose_access(group)
    return tuple(choose_predicate_table(predicate, access) for predicate in group)
