"""Compile the rows of a segment into groups, and into paths that find the groups.

The predicates of a group are sorted from the most to the least selective, so that the first is the group's access and
the second pass rejects early. Unlike in access.py all groups of the segment are known here: the constants that
subscriptions use serve as an estimate of the values that messages have.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from postroom.filters.columns import MISSING, UNBOUNDED, Bool, Int8, Int32, Int64, Slot, mark_changes
from postroom.filters.matching.compiled_rows import BITWISE_AND, INTERVAL, NOT_EQUAL, Rows
from postroom.filters.matching.two_passes import Feature, Groups, Path, Postings, Predicates
from postroom.values import ValueType

Float64 = npt.NDArray[np.float64]

#: The number of a predicate that holds for every message, with or without the property. No group contains it.
ALWAYS = 0

#: An interval needs a look-up for every cell width and has false candidates. So it is preferred to an equality only if
#: it matches this many times fewer messages.
INTERVAL_HANDICAP = 8

#: Two predicates form one key if more groups than this share the first, and if the pair of properties is one of the
#: most frequent: every pair of properties costs every message one more look-up.
MIN_SHARED_GROUPS = 8
MIN_GROUPS_OF_PAIR = 64
MAX_PAIRS = 32

#: One more path costs a message about as much as this many candidates.
CANDIDATES_PER_PATH = 1.0

#: A dense array needs four bytes for every possible key. Up to this many keys per group it is worth the memory.
DENSE_KEYS_PER_GROUP = 4


def build_groups(rows: Rows) -> Groups:
    """Build the groups of ``rows``, without those that no message can match (``x < 1 and x > 2``)."""
    group, kind, slot, low, high, operand = _intersect_intervals(rows)
    possible = np.ones(len(rows.owner), np.bool_)
    possible[group[low > high]] = False
    kept = possible[group]
    number = (np.cumsum(possible) - 1).astype(np.int32)
    group = number[group[kept]]
    predicates, member = _deduplicate_predicates(kind[kept], slot[kept], low[kept], high[kept], operand[kept])
    order = np.lexsort((_estimate_share(predicates, member, rows.slots)[member], group))
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
    first = np.flatnonzero(mark_changes(group) | mark_changes(slot))
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


def _deduplicate_predicates(
    kind: Int8, slot: Int32, low: Int32, high: Int32, operand: Int64
) -> tuple[Predicates, Int32]:
    """Return the distinct predicates, and the number of each row's predicate."""
    # ALWAYS is appended here and sorts first.
    kind, slot, operand = np.append(kind, np.int8(INTERVAL)), np.append(slot, np.int32(0)), np.append(operand, 0)
    low, high = np.append(low, np.int32(MISSING)), np.append(high, np.int32(UNBOUNDED))
    columns = (operand, high, low, slot, kind)
    order = np.lexsort(columns)
    changed = np.zeros(len(order), np.bool_)
    for column in columns:
        changed |= mark_changes(column[order])
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


def _estimate_share(predicates: Predicates, member: Int32, slots: tuple[Slot, ...]) -> Float64:
    """Return the share of messages that each predicate is expected to match."""
    users = np.bincount(member, minlength=len(predicates))
    equality = predicates.is_equality()
    compared = np.bincount(predicates.slot[equality], weights=users[equality], minlength=len(slots))
    is_bool = np.array([slot.value_type is ValueType.BOOL for slot in slots])
    equality_share = np.maximum(
        users / np.maximum(compared, 1)[predicates.slot], np.where(is_bool, 0.5, 0)[predicates.slot]
    )

    top = 2 * np.array([len(slot.constants) for slot in slots], np.int64)[predicates.slot]
    within = (np.minimum(predicates.high, top) - predicates.low + 1) / (top + 1)
    bounded = (predicates.low > 0) | (predicates.high < UNBOUNDED)
    return np.where(equality, equality_share, np.where(bounded, np.minimum(1, INTERVAL_HANDICAP * within), 1))


# -- paths to the groups -----------------------------------------------------------------------------------------------


def build_paths(groups: Groups, slots: tuple[Slot, ...]) -> tuple[tuple[Path, ...], Int8]:
    """Return the paths to all groups, and for each group how many of its first predicates its path already checks."""
    builder = _PathBuilder(groups, slots)
    return tuple(builder.build()), builder.checked_by_path


class _PathBuilder:
    def __init__(self, groups: Groups, slots: tuple[Slot, ...]) -> None:
        self._groups = groups
        self._sizes = [len(slot.constants) for slot in slots]
        predicates = groups.predicates
        equality = predicates.is_equality()
        # The first and the second predicate of each group. ALWAYS if there is no second.
        self._head = groups.members[groups.starts[:-1]]
        longer = groups.starts[1:] - groups.starts[:-1] > 1
        self._next = np.full(len(groups), ALWAYS, np.int32)
        self._next[longer] = groups.members[groups.starts[:-1][longer] + 1]
        self._slot = predicates.slot[self._head]
        self._by_equality = equality[self._head]
        self._is_shared = np.bincount(self._head, minlength=len(predicates))[self._head] > MIN_SHARED_GROUPS
        self._next_equality = longer & equality[self._next]
        bounded = (predicates.low > 0) | (predicates.high < UNBOUNDED)
        bounded[predicates.not_equals :] = False
        self._next_interval = longer & (bounded & ~equality)[self._next]
        self.checked_by_path: Int8 = self._by_equality.astype(np.int8)

    def build(self) -> Iterator[Path]:
        left = self._by_equality.copy()
        for first, second, chosen in self._find_pairs(left & self._next_equality):
            self.checked_by_path[chosen] = 2
            left[chosen] = False
            yield self._build_equality_path(first, second, chosen)
        for first, second, chosen in self._find_pairs(left & self._next_interval):
            if self._is_worth_cells(chosen):
                left[chosen] = False
                yield from self._build_interval_paths(self._to_feature(first), second, chosen, self._next)
        for slot, chosen in _group_by_kind(self._slot, left):
            yield self._build_path(self._to_feature(slot), None, self._get_constants(self._head[chosen]), chosen)
        for slot, chosen in _group_by_kind(self._slot, ~self._by_equality):
            yield from self._build_interval_paths(None, slot, chosen, self._head)

    def _find_pairs(self, among: Bool) -> Iterator[tuple[int, int, Int64]]:
        """Yield the pairs of properties that are worth a path: both slots, and the groups."""
        shared = np.flatnonzero(among & self._is_shared)
        one, two = self._slot[shared].astype(np.int64), self._groups.predicates.slot[self._next[shared]]
        swapped = self._next_equality[shared] & (two < one)
        pair = np.where(swapped, two, one) * len(self._sizes) + np.where(swapped, one, two)
        kinds, counts = np.unique(pair, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MAX_PAIRS]
        for kind in kinds[order][counts[order] >= MIN_GROUPS_OF_PAIR].tolist():
            yield *divmod(kind, len(self._sizes)), shared[pair == kind]

    def _build_equality_path(self, first: int, second: int, chosen: Int64) -> Path:
        in_order = self._slot[chosen] == first
        one, two = self._get_constants(self._head[chosen]), self._get_constants(self._next[chosen])
        keys = np.where(in_order, one, two) * self._sizes[second] + np.where(in_order, two, one)
        return self._build_path(self._to_feature(first), self._to_feature(second), keys, chosen)

    def _is_worth_cells(self, chosen: Int64) -> bool:
        """Return True if cells exclude enough of the groups that share an equality."""
        predicates, interval = self._groups.predicates, self._next[chosen]
        top = 2 * np.array(self._sizes)[predicates.slot[interval]]
        share = np.mean((np.minimum(predicates.high[interval], top) - predicates.low[interval] + 1) / (top + 1))
        crowd = len(chosen) / len(np.unique(self._head[chosen]))
        return bool(crowd * max(0.0, 1 - 2 * share) > MIN_SHARED_GROUPS)

    def _build_interval_paths(self, first: Feature | None, slot: int, chosen: Int64, interval: Int32) -> Iterator[Path]:
        """Yield paths by the cells of the groups' intervals on ``slot``, combined with their equality on ``first``."""
        predicates, top = self._groups.predicates, 2 * self._sizes[slot]
        low = predicates.low[interval[chosen]].astype(np.int64)
        high = np.minimum(predicates.high[interval[chosen]], top).astype(np.int64)
        constant = self._get_constants(self._head[chosen])
        lists = 1 if first is None else len(np.unique(constant))
        shift = _choose_shifts(low, high, top, lists=lists, space=1 if first is None else first.size)
        for each, same in _group_by_kind(shift, np.ones(len(shift), np.bool_)):
            cells = Feature(slot=slot, size=(top >> each) + 1, shift=each)
            one, other = low[same] >> each, high[same] >> each
            if first is not None:
                one, other = (constant[same] * cells.size + cell for cell in (one, other))
            wide = one != other
            keys = np.concatenate((one, other[wide]))
            indexed = np.concatenate((chosen[same], chosen[same][wide]))
            yield self._build_path(cells if first is None else first, None if first is None else cells, keys, indexed)

    def _build_path(self, first: Feature, second: Feature | None, keys: Int64, chosen: Int64) -> Path:
        space = first.size * (1 if second is None else second.size)
        postings = build_postings(keys, chosen.astype(np.int32), space)
        checks, checked_slot, has_more = self._find_checks(postings)
        return Path(
            first=first,
            second=second,
            postings=postings,
            checks=checks,
            checked_slot=checked_slot,
            has_more_checks=has_more,
        )

    def _find_checks(self, postings: Postings) -> tuple[Int32 | None, int | None, bool]:
        starts, groups = self._groups.starts, postings.groups
        at = starts[:-1][groups] + self.checked_by_path[groups]
        count = starts[1:][groups] - at
        if not np.any(count):
            return None, None, False
        checks = np.full(len(groups), ALWAYS, np.int32)
        checks[count > 0] = self._groups.members[at[count > 0]]
        slots = np.unique(self._groups.predicates.slot[checks[count > 0]])
        return checks, int(slots[0]) if len(slots) == 1 else None, bool(np.any(count > 1))

    def _to_feature(self, slot: int) -> Feature:
        return Feature(slot=slot, size=self._sizes[slot])

    def _get_constants(self, predicates: Int32) -> Int64:
        return (self._groups.predicates.low[predicates] >> 1).astype(np.int64)


def _group_by_kind(kind: Int32, chosen: Bool) -> Iterator[tuple[int, Int64]]:
    """Yield the chosen positions grouped by kind."""
    positions = np.flatnonzero(chosen)
    order = positions[np.argsort(kind[positions], kind="stable")]
    kinds, first = np.unique(kind[order], return_index=True)
    for each, (start, end) in zip(kinds.tolist(), pairwise([*first.tolist(), len(order)]), strict=True):
        yield each, order[start:end]


def _choose_shifts(low: Int64, high: Int64, top: int, *, lists: int, space: int) -> Int32:
    """Return the width of the cells of each interval, as a power of two.

    It is the smallest width that covers the interval, but large enough for dense postings. Intervals of a width that
    few share use the next larger width."""
    # The smallest shift with 2**shift >= the number of ranks. frexp computes it exactly from high - low.
    shift = np.frexp((high - low).astype(np.float64))[1].astype(np.int32)
    min_shift = 0
    while space * ((top >> min_shift) + 1) > max_dense_keys(len(low)) and top >> min_shift:
        min_shift += 1
    shift = np.maximum(shift, min_shift)
    widths, counts = np.unique(shift, return_counts=True)
    carried = 0
    for (width, wider), count in zip(pairwise(widths.tolist()), counts.tolist(), strict=False):
        carried += count
        if carried / lists * 2.0**wider / (top + 1) < CANDIDATES_PER_PATH:
            shift[shift == width] = wider
        else:
            carried = 0
    return shift


def build_postings(keys: Int64, groups: Int32, key_space: int) -> Postings:
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if key_space <= max_dense_keys(len(keys)):
        starts = np.concatenate(([0], np.cumsum(np.bincount(ordered, minlength=key_space)))).astype(np.int32)
        return Postings(keys=None, starts=starts, groups=groups[order])
    first = np.flatnonzero(mark_changes(ordered))
    return Postings(keys=ordered[first], starts=np.append(first, len(keys)).astype(np.int32), groups=groups[order])


def max_dense_keys(groups: int) -> int:
    """Return the maximum number of possible keys for a dense array of this number of groups."""
    return DENSE_KEYS_PER_GROUP * groups + 1_024
