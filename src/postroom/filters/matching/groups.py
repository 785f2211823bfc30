"""The AND-groups of a segment: every distinct predicate once, and for each group which of them it is made of.

Within a group the predicates stand from the most selective to the least, so that the first is the group's access
and the second pass meets early what is likely to fail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from postroom.filters.access import Selectivity
from postroom.filters.matching.constants import UNBOUNDED
from postroom.filters.matching.rows import BITWISE_AND, INTERVAL, NOT_EQUAL, Bool, Int8, Int32, Int64, Rows, Slot
from postroom.values import ValueType


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicates:
    """Distinct predicates, by number: intervals first, then (from ``not_equals``) ``!=``, then (from ``bitwise_ands``)
    bitwise ANDs. ``operand`` belongs to the last two only, and so begins at ``not_equals``."""

    slot: Int32
    low: Int32
    high: Int32
    operand: Int64
    not_equals: int
    bitwise_ands: int

    def __len__(self) -> int:
        return len(self.slot)

    def kind(self) -> Int8:
        kind = np.full(len(self), INTERVAL, np.int8)
        kind[self.not_equals :] = NOT_EQUAL
        kind[self.bitwise_ands :] = BITWISE_AND
        return kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """Group *g* belongs to the subscription at place ``owner[g]`` and asks for ``members[starts[g]:starts[g + 1]]``."""

    predicates: Predicates
    selectivity: Int8
    owner: Int32
    starts: Int32
    members: Int32

    def __len__(self) -> int:
        return len(self.owner)


def build_groups(rows: Rows) -> Groups:
    """The groups of ``rows``; one that no message can meet (``x < 1 and x > 2``) is left out."""
    group, kind, slot, low, high, operand = _intersected(rows)
    possible = np.ones(len(rows.owner), np.bool_)
    possible[group[low > high]] = False
    kept = possible[group]
    number = (np.cumsum(possible) - 1).astype(np.int32)
    group = number[group[kept]]
    predicates, member = _distinct(kind[kept], slot[kept], low[kept], high[kept], operand[kept])
    selectivity = _selectivity(predicates, rows.slots)
    order = np.lexsort((_cost(predicates, selectivity, member, rows.slots)[member], selectivity[member], group))
    return Groups(
        predicates=predicates,
        selectivity=selectivity,
        owner=rows.owner[possible],
        starts=np.concatenate(([0], np.cumsum(np.bincount(group, minlength=int(possible.sum()))))).astype(np.int32),
        members=member[order],
    )


def _intersected(rows: Rows) -> tuple[Int32, Int8, Int32, Int32, Int32, Int64]:
    """The rows with all intervals of one group on one property made one: bounds, equalities and exists alike."""
    is_interval = rows.kind == INTERVAL
    group, slot = rows.group[is_interval], rows.slot[is_interval]
    order = np.lexsort((slot, group))
    group, slot = group[order], slot[order]
    first = np.flatnonzero(changes(group) | changes(slot))
    low = np.maximum.reduceat(rows.low[is_interval][order], first) if len(first) else np.empty(0, np.int32)
    high = np.minimum.reduceat(rows.high[is_interval][order], first) if len(first) else np.empty(0, np.int32)
    other = ~is_interval
    return (
        np.concatenate((group[first], rows.group[other])),
        np.concatenate((np.full(len(first), INTERVAL, np.int8), rows.kind[other])),
        np.concatenate((slot[first], rows.slot[other])),
        np.concatenate((low, rows.low[other])),
        np.concatenate((high, rows.high[other])),
        np.concatenate((np.zeros(len(first), np.int64), rows.operand[other])),
    )


def changes(values: Int8 | Int32 | Int64) -> Bool:
    """Where a value differs from the one before it; the first always does."""
    changed = np.ones(len(values), np.bool_)
    changed[1:] = values[1:] != values[:-1]
    return changed


def _distinct(kind: Int8, slot: Int32, low: Int32, high: Int32, operand: Int64) -> tuple[Predicates, Int32]:
    """Every predicate once, and the number of each row's predicate."""
    columns = (operand, high, low, slot, kind)
    order = np.lexsort(columns)
    changed = np.zeros(len(order), np.bool_)
    for column in columns:
        changed |= changes(column[order])
    number = np.empty(len(order), np.int32)
    number[order] = np.cumsum(changed) - 1
    first = order[changed]
    not_equals = int(np.searchsorted(kind[first], NOT_EQUAL))
    predicates = Predicates(
        slot=slot[first],
        low=low[first],
        high=high[first],
        operand=operand[first][not_equals:],
        not_equals=not_equals,
        bitwise_ands=int(np.searchsorted(kind[first], BITWISE_AND)),
    )
    return predicates, number


def _selectivity(predicates: Predicates, slots: tuple[Slot, ...]) -> Int8:
    """The kind of access that each predicate would be, as access.py ranks them."""
    value_type = np.array([slot.value_type for slot in slots], np.int8)[predicates.slot]
    equality = np.full(len(predicates), Selectivity.EQUALITY, np.int8)
    equality[value_type == ValueType.STR] = Selectivity.TEXT_EQUALITY
    equality[value_type == ValueType.BOOL] = Selectivity.BOOL_EQUALITY
    bounds = (predicates.low > 0).astype(np.int8) + (predicates.high < UNBOUNDED)
    selectivity = np.array([Selectivity.PRESENCE, Selectivity.ONE_SIDED, Selectivity.INTERVAL], np.int8)[bounds]
    # An odd rank is a constant's own; an interval of one even rank lies between two constants.
    return np.where((predicates.low == predicates.high) & (predicates.low & 1 == 1), equality, selectivity)


def _cost(predicates: Predicates, selectivity: Int8, member: Int32, slots: tuple[Slot, ...]) -> Int64:
    """Which of two predicates of one kind is the better access: the rarer equality, the narrower interval."""
    users = np.bincount(member, minlength=len(predicates))
    top = 2 * np.array([len(slot.constants) for slot in slots], np.int64)[predicates.slot]
    width = np.minimum(predicates.high, top) - predicates.low
    share = (width << 20) // (top + 1)
    is_equality = (predicates.low == predicates.high) & (selectivity != Selectivity.PRESENCE)
    return np.where(is_equality, users, share).astype(np.int64)
