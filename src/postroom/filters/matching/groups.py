"""The AND-groups of a segment: every distinct predicate once, and for each group the numbers of its predicates.

The predicates of a group are sorted from the most to the least selective, so that the first is the group's access and
the second pass rejects early. Unlike in access.py all groups of the segment are known here: the constants that
subscriptions use serve as an estimate of the values that messages have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroom.filters.matching.ranks import MISSING, UNBOUNDED, Bool, Int8, Int32, Int64, Slot, changes
from postroom.filters.matching.rows import BITWISE_AND, INTERVAL, NOT_EQUAL, Rows
from postroom.values import ValueType

Float64 = npt.NDArray[np.float64]

#: The number of a predicate that holds for every message, with or without the property. No group contains it.
ALWAYS = 0

#: An interval needs a look-up for every cell width and has false candidates. So it is preferred to an equality only if
#: it matches this many times fewer messages.
INTERVAL_HANDICAP = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicates:
    """Distinct predicates by number: ALWAYS, intervals, from ``not_equals`` on ``!=``, from ``bitwise_ands`` on bitwise
    ANDs. Only the last two have an ``operand``, so that array starts at ``not_equals``."""

    slot: Int32
    low: Int32
    high: Int32
    operand: Int64
    not_equals: int
    bitwise_ands: int

    def __len__(self) -> int:
        return len(self.slot)

    def is_equality(self) -> Bool:
        # An odd rank is the rank of a constant. An interval of one even rank lies between two constants.
        found: Bool = (self.low == self.high) & (self.low & 1 == 1)
        return found

    def kind(self) -> Int8:
        kind = np.full(len(self), INTERVAL, np.int8)
        kind[self.not_equals :] = NOT_EQUAL
        kind[self.bitwise_ands :] = BITWISE_AND
        return kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """Group *g* belongs to subscription number ``owner[g]`` and has the predicates ``members[starts[g]:starts[g +
    1]]``."""

    predicates: Predicates
    owner: Int32
    starts: Int32
    members: Int32

    def __len__(self) -> int:
        return len(self.owner)


def build_groups(rows: Rows) -> Groups:
    """Build the groups of ``rows``, without those that no message can match (``x < 1 and x > 2``)."""
    group, kind, slot, low, high, operand = _intersect_intervals(rows)
    possible = np.ones(len(rows.owner), np.bool_)
    possible[group[low > high]] = False
    kept = possible[group]
    number = (np.cumsum(possible) - 1).astype(np.int32)
    group = number[group[kept]]
    predicates, member = _distinct(kind[kept], slot[kept], low[kept], high[kept], operand[kept])
    order = np.lexsort((_expected_share(predicates, member, rows.slots)[member], group))
    return Groups(
        predicates=predicates,
        owner=rows.owner[possible],
        starts=np.concatenate(([0], np.cumsum(np.bincount(group, minlength=int(possible.sum()))))).astype(np.int32),
        members=member[order],
    )


def _intersect_intervals(rows: Rows) -> tuple[Int32, Int8, Int32, Int32, Int32, Int64]:
    """Intersect all intervals of one group on one property: bounds, equalities and exists."""
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


def _distinct(kind: Int8, slot: Int32, low: Int32, high: Int32, operand: Int64) -> tuple[Predicates, Int32]:
    """Return the distinct predicates, and the number of each row's predicate."""
    # ALWAYS is appended here and sorts first.
    kind, slot, operand = np.append(kind, np.int8(INTERVAL)), np.append(slot, np.int32(0)), np.append(operand, 0)
    low, high = np.append(low, np.int32(MISSING)), np.append(high, np.int32(UNBOUNDED))
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
    return predicates, number[:-1]


def _expected_share(predicates: Predicates, member: Int32, slots: tuple[Slot, ...]) -> Float64:
    """Return the share of messages that each predicate is expected to match."""
    users = np.bincount(member, minlength=len(predicates))
    equality = predicates.is_equality()
    asked = np.bincount(predicates.slot[equality], weights=users[equality], minlength=len(slots))
    is_bool = np.array([slot.value_type is ValueType.BOOL for slot in slots])
    alike = np.maximum(users / np.maximum(asked, 1)[predicates.slot], np.where(is_bool, 0.5, 0)[predicates.slot])

    top = 2 * np.array([len(slot.constants) for slot in slots], np.int64)[predicates.slot]
    within = (np.minimum(predicates.high, top) - predicates.low + 1) / (top + 1)
    bounded = (predicates.low > 0) | (predicates.high < UNBOUNDED)
    return np.where(equality, alike, np.where(bounded, np.minimum(1, INTERVAL_HANDICAP * within), 1))
