"""Pass one: find candidate groups by a key.

A group is indexed by its most selective predicate:

- an equality: the key is the constant.
- two equalities, where many groups share the first: the key is the pair, so that most candidates are matches.
- an interval: ranks are divided into cells. The width of a cell is a power of two at least as wide as the interval, so
  the interval covers at most two cells, and the key is the cell. Intervals of very different widths have paths of their
  own, and every message looks into each path.
- an equality and an interval, where many groups share the equality: the key is the pair of constant and cell.
- presence (``!=``, exists, bitwise AND): the interval of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from postroom.filters.matching.groups import ALWAYS, Groups
from postroom.filters.matching.ranks import UNBOUNDED, Bool, Int8, Int32, Int64, RankedBatch, Ranks, Slot, changes

#: Two predicates form one key if more groups than this share the first, and if the pair of properties is one of the
#: most frequent: every pair of properties costs every message one more look-up.
MIN_SHARED_GROUPS = 8
MIN_GROUPS_OF_PAIR = 64
MAX_PAIRS = 32

#: One more path costs a message about as much as this many candidates.
CANDIDATES_PER_PATH = 1.0


#: How many (message, group) pairs are checked together: enough to hide the cost of a call, few enough for the cache.
PAIRS_AT_ONCE = 1 << 17

#: A dense array needs four bytes for every possible key. Up to this many keys per group it is worth the memory.
DENSE_KEYS_PER_GROUP = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """A part of a key: the constant of a property, or with ``shift`` the cell of 2**shift ranks that contains the
    value. It is a number below ``size``."""

    slot: int
    size: int
    shift: int | None = None

    def of(self, ranks: Ranks) -> tuple[Int64, Bool]:
        """Return the number for each rank, and whether it has one."""
        if self.shift is None:
            return (ranks >> 1).astype(np.int64), (ranks & 1 == 1) & (ranks > 0)
        return (ranks >> self.shift).astype(np.int64), ranks >= 0

    def of_one(self, rank: int) -> int | None:
        if self.shift is None:
            return rank >> 1 if rank > 0 and rank & 1 else None
        return rank >> self.shift if rank >= 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Postings:
    """Groups by key. If ``keys`` is None it is dense: ``starts`` has an entry for every possible key."""

    keys: Int64 | None
    starts: Int32
    groups: Int32

    def find(self, keys: Int64) -> tuple[Int64, Int64]:
        """Return the position of the first group of each key, and the number of groups."""
        if self.keys is None:
            starts = self.starts.take(keys, mode="clip")
            return starts.astype(np.int64), (self.starts.take(keys + 1, mode="clip") - starts).astype(np.int64)
        places = self.keys.searchsorted(keys)
        starts = self.starts.take(places, mode="clip")
        found = self.keys.take(places, mode="clip") == keys
        counts = np.where(found, self.starts.take(places + 1, mode="clip") - starts, 0)
        return starts.astype(np.int64), counts.astype(np.int64)

    def find_one(self, key: int) -> Int32:
        """Return the groups of one key."""
        place = key
        if self.keys is not None:
            place = int(self.keys.searchsorted(key))
            if place == len(self.keys) or self.keys.item(place) != key:
                return self.groups[:0]
        return self.groups[self.starts.item(place) : self.starts.item(place + 1)]


def file_by_key(keys: Int64, groups: Int32, key_space: int) -> Postings:
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if key_space <= max_dense_keys(len(keys)):
        starts = np.concatenate(([0], np.cumsum(np.bincount(ordered, minlength=key_space)))).astype(np.int32)
        return Postings(keys=None, starts=starts, groups=groups[order])
    first = np.flatnonzero(changes(ordered))
    return Postings(keys=ordered[first], starts=np.append(first, len(keys)).astype(np.int32), groups=groups[order])


def max_dense_keys(groups: int) -> int:
    """Return the maximum number of possible keys for a dense array of so many groups."""
    return DENSE_KEYS_PER_GROUP * groups + 1_024


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """The groups that are indexed by one or two features.

    ``checks`` has the first predicate to check for every entry of the postings. It is None if the key decides alone.
    ``checked`` is the property that all of these predicates compare, if it is only one. ``more`` is True if some groups
    have further predicates."""

    first: Feature
    second: Feature | None = None
    postings: Postings
    checks: Int32 | None
    checked: int | None
    more: bool

    def candidates(self, batch: RankedBatch) -> Iterator[tuple[Int64, Int64]]:
        """Yield pairs of message and position in the postings, as two arrays, in portions."""
        keys, there = self._keys(batch)
        if keys is None:
            return
        starts, counts = self.postings.find(keys)
        hit = np.flatnonzero(there & (counts > 0))
        starts, counts = starts.take(hit), counts.take(hit)
        ends = np.cumsum(counts)
        at = 0
        while at < len(hit):
            done = int(ends[at - 1]) if at else 0
            to = max(at + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
            chosen = slice(at, to)
            # The positions starts[i], starts[i] + 1, ... of each message, one after the other.
            shifts = np.repeat(starts[chosen] - (ends[chosen] - counts[chosen] - done), counts[chosen])
            shifts += np.arange(len(shifts))
            yield np.repeat(hit[chosen], counts[chosen]), shifts
            at = to

    def _keys(self, batch: RankedBatch) -> tuple[Int64 | None, Bool]:
        nothing = np.empty(0, np.bool_)
        ranks = batch.of(self.first.slot)
        if ranks is None:
            return None, nothing
        keys, there = self.first.of(ranks)
        if self.second is not None:
            ranks = batch.of(self.second.slot)
            if ranks is None:
                return None, nothing
            others, also = self.second.of(ranks)
            keys *= self.second.size
            keys += others
            there &= also
        return keys, there

    def candidates_of_one(self, ranks: Mapping[int, int]) -> Int32 | None:
        """Return the candidate groups of one message with these ranks by slot."""
        key = self.first.of_one(ranks[self.first.slot])
        if key is None:
            return None
        if self.second is not None:
            other = self.second.of_one(ranks.get(self.second.slot, -1))
            if other is None:
                return None
            key = key * self.second.size + other
        return self.postings.find_one(key)


def build_paths(groups: Groups, slots: tuple[Slot, ...]) -> tuple[tuple[Path, ...], Int8]:
    """Return the paths to all groups, and for each group how many of its first predicates its path already checks."""
    build = _Build(groups, slots)
    return tuple(build.paths()), build.answered


class _Build:
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
        self.answered: Int8 = self._by_equality.astype(np.int8)

    def paths(self) -> Iterator[Path]:
        left = self._by_equality.copy()
        for first, second, chosen in self._pairs(left & self._next_equality):
            self.answered[chosen] = 2
            left[chosen] = False
            yield self._equalities(first, second, chosen)
        for first, second, chosen in self._pairs(left & self._next_interval):
            if self._worth_cells(chosen):
                left[chosen] = False
                yield from self._intervals(self._constants(first), second, chosen, self._next)
        for slot, chosen in _split(self._slot, left):
            yield self._path(self._constants(slot), None, self._constant(self._head[chosen]), chosen)
        for slot, chosen in _split(self._slot, ~self._by_equality):
            yield from self._intervals(None, slot, chosen, self._head)

    def _pairs(self, among: Bool) -> Iterator[tuple[int, int, Int64]]:
        """Yield the pairs of properties that are worth a path: both slots, and the groups."""
        crowded = np.flatnonzero(among & self._is_shared)
        one, two = self._slot[crowded].astype(np.int64), self._groups.predicates.slot[self._next[crowded]]
        swapped = self._next_equality[crowded] & (two < one)
        pair = np.where(swapped, two, one) * len(self._sizes) + np.where(swapped, one, two)
        kinds, counts = np.unique(pair, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MAX_PAIRS]
        for kind in kinds[order][counts[order] >= MIN_GROUPS_OF_PAIR].tolist():
            yield *divmod(kind, len(self._sizes)), crowded[pair == kind]

    def _equalities(self, first: int, second: int, chosen: Int64) -> Path:
        in_order = self._slot[chosen] == first
        one, two = self._constant(self._head[chosen]), self._constant(self._next[chosen])
        keys = np.where(in_order, one, two) * self._sizes[second] + np.where(in_order, two, one)
        return self._path(self._constants(first), self._constants(second), keys, chosen)

    def _worth_cells(self, chosen: Int64) -> bool:
        """Return True if cells exclude enough of the groups that share an equality."""
        predicates, interval = self._groups.predicates, self._next[chosen]
        top = 2 * np.array(self._sizes)[predicates.slot[interval]]
        share = np.mean((np.minimum(predicates.high[interval], top) - predicates.low[interval] + 1) / (top + 1))
        crowd = len(chosen) / len(np.unique(self._head[chosen]))
        return bool(crowd * max(0.0, 1 - 2 * share) > MIN_SHARED_GROUPS)

    def _intervals(self, first: Feature | None, slot: int, chosen: Int64, interval: Int32) -> Iterator[Path]:
        """Yield paths by the cells of the groups' intervals on ``slot``, combined with their equality on ``first``."""
        predicates, top = self._groups.predicates, 2 * self._sizes[slot]
        low = predicates.low[interval[chosen]].astype(np.int64)
        high = np.minimum(predicates.high[interval[chosen]], top).astype(np.int64)
        constant = self._constant(self._head[chosen])
        lists = 1 if first is None else len(np.unique(constant))
        shift = _shifts(low, high, top, lists=lists, space=1 if first is None else first.size)
        for each, there in _split(shift, np.ones(len(shift), np.bool_)):
            cells = Feature(slot=slot, size=(top >> each) + 1, shift=each)
            one, other = low[there] >> each, high[there] >> each
            if first is not None:
                one, other = (constant[there] * cells.size + cell for cell in (one, other))
            wide = one != other
            keys = np.concatenate((one, other[wide]))
            filed = np.concatenate((chosen[there], chosen[there][wide]))
            yield self._path(cells if first is None else first, None if first is None else cells, keys, filed)

    def _path(self, first: Feature, second: Feature | None, keys: Int64, chosen: Int64) -> Path:
        space = first.size * (1 if second is None else second.size)
        postings = file_by_key(keys, chosen.astype(np.int32), space)
        checks, checked, more = self._checks(postings)
        return Path(first=first, second=second, postings=postings, checks=checks, checked=checked, more=more)

    def _checks(self, postings: Postings) -> tuple[Int32 | None, int | None, bool]:
        starts, groups = self._groups.starts, postings.groups
        at = starts[:-1][groups] + self.answered[groups]
        count = starts[1:][groups] - at
        if not np.any(count):
            return None, None, False
        checks = np.full(len(groups), ALWAYS, np.int32)
        checks[count > 0] = self._groups.members[at[count > 0]]
        slots = np.unique(self._groups.predicates.slot[checks[count > 0]])
        return checks, int(slots[0]) if len(slots) == 1 else None, bool(np.any(count > 1))

    def _constants(self, slot: int) -> Feature:
        return Feature(slot=slot, size=self._sizes[slot])

    def _constant(self, predicates: Int32) -> Int64:
        return (self._groups.predicates.low[predicates] >> 1).astype(np.int64)


def _split(kind: Int32, chosen: Bool) -> Iterator[tuple[int, Int64]]:
    """Yield the chosen positions grouped by kind."""
    places = np.flatnonzero(chosen)
    order = places[np.argsort(kind[places], kind="stable")]
    kinds, first = np.unique(kind[order], return_index=True)
    for each, (start, end) in zip(kinds.tolist(), pairwise([*first.tolist(), len(order)]), strict=True):
        yield each, order[start:end]


def _shifts(low: Int64, high: Int64, top: int, *, lists: int, space: int) -> Int32:
    """Return the width of the cells of each interval, as a power of two.

    It is the smallest width that covers the interval, but large enough for dense postings. Intervals of a width that
    few share use the next larger width."""
    # The smallest shift with 2**shift >= the number of ranks. frexp computes it exactly from high - low.
    shift = np.frexp((high - low).astype(np.float64))[1].astype(np.int32)
    least = 0
    while space * ((top >> least) + 1) > max_dense_keys(len(low)) and top >> least:
        least += 1
    shift = np.maximum(shift, least)
    widths, counts = np.unique(shift, return_counts=True)
    carried = 0
    for (width, wider), count in zip(pairwise(widths.tolist()), counts.tolist(), strict=False):
        carried += count
        if carried / lists * 2.0**wider / (top + 1) < CANDIDATES_PER_PATH:
            shift[shift == width] = wider
        else:
            carried = 0
    return shift
