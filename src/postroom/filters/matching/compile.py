"""Compile the rows of a segment into groups, and into paths that find the groups.

The predicates of a group are sorted from the most to the least selective, so that the first ones are the group's key
and the second pass rejects early. Unlike in access.py all groups of the segment are known here: the constants that
subscriptions use serve as an estimate of the values that messages have.

A key begins with one predicate. As long as a message is expected to find more candidates by it than a further look-up
costs, the next equality of the groups is added to the key, and at last an interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from postroom.filters.columns import MISSING, UNBOUNDED, Bool, Int8, Int32, Int64, Slot, mark_changes
from postroom.filters.matching.compiled_rows import BITWISE_AND, INTERVAL, NOT_EQUAL, Rows
from postroom.filters.matching.two_passes import Feature, Groups, Path, Postings, Predicates, SecondPass
from postroom.values import ValueType

Float64 = npt.NDArray[np.float64]

#: The number of a predicate that holds for every message, with or without the property. No group contains it.
ALWAYS = 0

#: An interval needs a look-up for every cell width and has false candidates. So it is preferred to an equality only if
#: it matches this many times fewer messages.
INTERVAL_HANDICAP = 8

#: A key gets a further equality, or a further interval, if that saves a message so many candidates. One more path costs
#: a message of a batch about as much as one candidate, and a message alone about as much as three.
MIN_SAVED_CANDIDATES, MIN_SAVED_BY_INTERVAL = 1.5, 8.0

#: Intervals of another width get a path of their own if a message would find this many of them otherwise.
MIN_CANDIDATES_OF_WIDTH = 1.0

#: Keys are computed as 64-bit integers.
MAX_KEYS = 1 << 62

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
    order = np.lexsort((_rank_predicates(predicates, member, group, rows.slots), group))
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
    bounded = (predicates.low > 0) | (predicates.high < UNBOUNDED)
    interval_share = np.minimum(1, INTERVAL_HANDICAP * _estimate_width(predicates, slots))
    return np.where(equality, equality_share, np.where(bounded, interval_share, 1))


def _estimate_width(predicates: Predicates, slots: tuple[Slot, ...]) -> Float64:
    """Return the share of all ranks that the interval of each predicate covers."""
    top = 2 * np.array([len(slot.constants) for slot in slots], np.int64)[predicates.slot]
    return (np.minimum(predicates.high, top) - predicates.low + 1) / (top + 1)


def _rank_predicates(predicates: Predicates, member: Int32, group: Int32, slots: tuple[Slot, ...]) -> Float64:
    """Return numbers by which the predicates of each group are sorted: equalities, then the others by their share.

    Equalities are sorted by property and not by value, so that groups with the same properties have the same key. Of
    about equally selective properties, the one that more groups compare is first: it leads to fewer paths. An interval
    precedes the equalities if it is narrower than all of them."""
    share, equality = _estimate_share(predicates, member, slots), predicates.is_equality()
    users = np.bincount(member, minlength=len(predicates))[equality]
    of_slot = predicates.slot[equality]
    compared = np.bincount(of_slot, weights=users, minlength=len(slots))
    mean = np.bincount(of_slot, weights=users * share[equality], minlength=len(slots)) / np.maximum(compared, 1)
    position = np.empty(len(slots))
    position[np.lexsort((-compared, np.rint(np.log2(np.maximum(mean, 2.0**-62)))))] = np.arange(len(slots))

    share, equality = share[member], equality[member]
    narrowest = np.ones(int(group.max(initial=-1)) + 1)
    np.minimum.at(narrowest, group[equality], share[equality])
    is_first = share < narrowest[group]
    return np.where(equality, position[predicates.slot[member]], np.where(is_first, share - 1, len(slots) + share))


# -- paths to the groups -----------------------------------------------------------------------------------------------


def build_paths(groups: Groups, slots: tuple[Slot, ...]) -> tuple[tuple[Path, ...], SecondPass]:
    """Return the paths to all groups, and the second pass over their postings."""
    builder = _PathBuilder(groups, slots)
    paths = tuple(builder.build())
    return paths, SecondPass(groups, builder.join_postings(), builder.checked_by_path)


class _PathBuilder:
    def __init__(self, groups: Groups, slots: tuple[Slot, ...]) -> None:
        self._groups = groups
        self._sizes = [len(slot.constants) for slot in slots]
        predicates = groups.predicates
        self._share = _estimate_share(predicates, groups.members, slots)
        self._width = _estimate_width(predicates, slots)
        self._is_equality = predicates.is_equality()
        self._is_range = ~self._is_equality & ((predicates.low > 0) | (predicates.high < UNBOUNDED))
        self._is_range[predicates.not_equals :] = False
        #: How many of the first predicates of each group its path checks.
        self.checked_by_path: Int8 = np.zeros(len(groups), np.int8)
        self._indexed: list[Int32] = []
        self._size = 0

    def build(self) -> Iterator[Path]:
        head = self._get_predicates(np.arange(len(self._groups)), 0)
        slot, by_equality = self._groups.predicates.slot[head], self._is_equality[head]
        for each, chosen in _group_by_kind(slot, by_equality):
            keys = self._get_constants(head[chosen])
            yield from self._build_equality_paths((self._to_feature(each),), keys, chosen, self._share[head[chosen]])
        for each, chosen in _group_by_kind(slot, ~by_equality):
            yield from self._build_interval_paths((), np.zeros(len(chosen), np.int64), each, chosen, head[chosen])

    def _build_equality_paths(
        self, features: tuple[Feature, ...], keys: Int64, chosen: Int64, likelihood: Float64
    ) -> Iterator[Path]:
        """Yield the paths of groups whose first predicates are equalities with these features.

        ``likelihood`` is the probability that a message has the key of a group. Their sum is the number of candidates
        that a message is expected to find. Groups for which a further predicate saves more of them than another path
        costs get longer keys."""
        self.checked_by_path[chosen] = len(features)
        following = self._get_predicates(chosen, len(features))
        slot = self._groups.predicates.slot[following]
        saved = likelihood * (1 - self._share[following])
        left = np.ones(len(chosen), np.bool_)
        for each, same in _group_by_kind(slot, self._is_equality[following]):
            feature = self._to_feature(each)
            space = _count_keys((*features, feature))
            if saved[same].sum() > MIN_SAVED_CANDIDATES and space < MAX_KEYS:
                left[same] = False
                longer = keys[same] * feature.size + self._get_constants(following[same])
                # In a key with few groups, the share of the predicate among all groups is the better estimate.
                sharing, still_sharing = _count_equal(keys[same], space), _count_equal(longer, space)
                likely = likelihood[same] * (still_sharing - 1 + self._share[following[same]]) / sharing
                yield from self._build_equality_paths((*features, feature), longer, chosen[same], likely)
        for each, same in _group_by_kind(slot, left & self._is_range[following]):
            # A value may be in the cell of an interval, but not in the interval.
            missed = np.maximum(0, 1 - 2 * self._width[following[same]])
            if (likelihood[same] * missed).sum() > MIN_SAVED_BY_INTERVAL:
                left[same] = False
                yield from self._build_interval_paths(features, keys[same], each, chosen[same], following[same])
        if np.any(left):
            yield self._build_path(features, keys[left], chosen[left])

    def _build_interval_paths(
        self, features: tuple[Feature, ...], keys: Int64, slot: int, chosen: Int64, intervals: Int32
    ) -> Iterator[Path]:
        """Yield paths by the cells of the groups' intervals on ``slot``, after their ``keys`` by other features."""
        predicates, top = self._groups.predicates, 2 * self._sizes[slot]
        low = predicates.low[intervals].astype(np.int64)
        high = np.minimum(predicates.high[intervals], top).astype(np.int64)
        shift = _choose_shifts(low, high, top, lists=len(np.unique(keys)), space=_count_keys(features))
        for each, same in _group_by_kind(shift, np.ones(len(shift), np.bool_)):
            cells = Feature(slot=slot, size=(top >> each) + 2, shift=each)
            one, other = (keys[same] * cells.size + (bound[same] >> each) for bound in (low, high))
            wide = one != other
            indexed = np.concatenate((chosen[same], chosen[same][wide]))
            yield self._build_path((*features, cells), np.concatenate((one, other[wide])), indexed)

    def _build_path(self, features: tuple[Feature, ...], keys: Int64, chosen: Int64) -> Path:
        order = np.argsort(keys, kind="stable")
        ordered, indexed = keys[order], chosen[order].astype(np.int32)
        space = _count_keys(features)
        distinct: Int64 | None = None
        if space <= max_dense_keys(len(keys)):
            starts = np.concatenate(([0], np.cumsum(np.bincount(ordered, minlength=space))))
        else:
            first = np.flatnonzero(mark_changes(ordered))
            distinct, starts = ordered[first], np.append(first, len(keys))
        checked = self.checked_by_path[indexed]
        checks = int((self._groups.starts[indexed + 1] - self._groups.starts[indexed] - checked).max())
        slots = np.unique(self._groups.predicates.slot[self._get_predicates(indexed, checked)])
        starts = (starts + self._size).astype(np.int32)
        self._indexed.append(indexed)
        self._size += len(indexed)
        return Path(
            features=features,
            keys=distinct,
            starts=starts,
            checks=checks,
            checked_slot=int(slots[0]) if len(slots) == 1 else None,
        )

    def join_postings(self) -> Postings:
        """Return the postings of all paths that were built."""
        groups = np.concatenate([np.empty(0, np.int32), *self._indexed])
        return Postings(groups=groups, checks=self._get_predicates(groups, self.checked_by_path[groups]))

    def _get_predicates(self, groups: Int32 | Int64, position: int | Int8) -> Int32:
        """Return the predicate at this position of each group, ALWAYS if it has fewer."""
        at = self._groups.starts[groups] + position
        found = self._groups.members.take(at, mode="clip")
        found[at >= self._groups.starts[groups + 1]] = ALWAYS
        return found

    def _to_feature(self, slot: int) -> Feature:
        return Feature(slot=slot, size=self._sizes[slot] + 1)

    def _get_constants(self, predicates: Int32) -> Int64:
        return (self._groups.predicates.low[predicates] >> 1).astype(np.int64)


def _count_keys(features: tuple[Feature, ...]) -> int:
    """Return the number of possible keys."""
    return prod(feature.size for feature in features)


def _count_equal(keys: Int64, space: int) -> Int64:
    """Return how many of the keys equal each key."""
    if space <= max_dense_keys(len(keys)):
        return np.bincount(keys)[keys]
    _, number, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return counts[number]


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
    while space * ((top >> min_shift) + 2) > max_dense_keys(len(low)) and top >> min_shift:
        min_shift += 1
    shift = np.maximum(shift, min_shift)
    widths, counts = np.unique(shift, return_counts=True)
    carried = 0
    for (width, wider), count in zip(pairwise(widths.tolist()), counts.tolist(), strict=False):
        carried += count
        if carried / lists * 2.0**wider / (top + 1) < MIN_CANDIDATES_OF_WIDTH:
            shift[shift == width] = wider
        else:
            carried = 0
    return shift


def max_dense_keys(groups: int) -> int:
    """Return the maximum number of possible keys for a dense array of this number of groups."""
    return DENSE_KEYS_PER_GROUP * groups + 2_048
