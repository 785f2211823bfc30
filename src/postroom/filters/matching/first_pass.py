"""Pass one: the groups that a message could meet, found by a key that is computed from its ranks.

A group is filed under its most selective predicate:

- an equality: the key is the constant;
- two equalities, where many groups share the first: the key is the pair, so that what comes out of this pass is
  nearly what will match;
- an interval: ranks are cut into cells of a power of two that is at least as wide as the interval, which then lies
  in at most two cells; the key is the cell. There is one path for each width, and a message asks each of them;
- presence (``!=``, exists, bitwise AND): the interval of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from postroom.filters.matching.groups import Groups, changes
from postroom.filters.matching.ranked import RankedBatch
from postroom.filters.matching.rows import Bool, Int8, Int32, Int64, Slot

#: How many (message, group) pairs are looked at together: enough to hide the cost of a call, few enough for a cache.
PAIRS_AT_ONCE = 1 << 18

#: Two equalities make one key where more groups than this share the first, and where the pair of properties is one
#: of the most frequent: every further pair of properties is a further look-up for every message.
CROWD = 8
MIN_GROUPS_OF_PAIR = 64
MAX_PAIRS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Postings:
    """Groups by key. Dense (``keys`` is None): ``starts`` has a place for every key there can be."""

    keys: Int64 | None
    starts: Int32
    groups: Int32

    def find(self, keys: Int64) -> tuple[Int32, Int32]:
        """Start and number of the groups of each key."""
        if self.keys is None:
            starts = self.starts[keys]
            return starts, self.starts[keys + 1] - starts
        places = self.keys.searchsorted(keys)
        starts = self.starts[places]
        found = self.keys.take(places, mode="clip") == keys
        return starts, np.where(found, self.starts.take(places + 1, mode="clip") - starts, 0)

    def find_one(self, key: int) -> Int32:
        """The groups of one key."""
        place = key
        if self.keys is not None:
            place = int(self.keys.searchsorted(key))
            if place == len(self.keys) or self.keys.item(place) != key:
                return self.groups[:0]
        return self.groups[self.starts.item(place) : self.starts.item(place + 1)]


def _postings(keys: Int64, groups: Int32, key_space: int) -> Postings:
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if key_space <= 2 * len(keys) + 1_024:
        starts = np.searchsorted(ordered, np.arange(key_space + 1)).astype(np.int32)
        return Postings(keys=None, starts=starts, groups=groups[order])
    first = np.flatnonzero(changes(ordered))
    return Postings(keys=ordered[first], starts=np.append(first, len(keys)).astype(np.int32), groups=groups[order])


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """One way to candidates: by the constants of one or two properties, or (``shift``) by a cell of ranks."""

    slot: int
    second: int | None = None
    radix: int = 1
    shift: int | None = None
    postings: Postings

    def candidates(self, batch: RankedBatch) -> Iterator[tuple[Int32, Int32]]:
        """Pairs of message and group, as two arrays, a portion at a time."""
        found = self._keys(batch)
        if found is None:
            return
        rows, keys = found
        starts, counts = self.postings.find(keys)
        hit = counts > 0
        rows, starts, counts = rows[hit], starts[hit], counts[hit]
        ends = np.cumsum(counts)
        at = 0
        while at < len(rows):
            done = int(ends[at - 1]) if at else 0
            to = max(at + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
            chosen = slice(at, to)
            # The places starts[i], starts[i] + 1, ... of each message, one after the other.
            shifts = np.repeat(starts[chosen] - (ends[chosen] - counts[chosen] - done), counts[chosen])
            places = shifts + np.arange(len(shifts))
            yield np.repeat(rows[chosen].astype(np.int32), counts[chosen]), self.postings.groups[places]
            at = to

    def _keys(self, batch: RankedBatch) -> tuple[Int64, Int64] | None:
        ranks = batch.of(self.slot)
        if ranks is None:
            return None
        if self.shift is not None:
            rows = np.flatnonzero(ranks >= 0)
            return rows, (ranks[rows] >> self.shift).astype(np.int64)
        if self.second is None:
            rows = np.flatnonzero((ranks & 1 == 1) & (ranks > 0))
            return rows, (ranks[rows] >> 1).astype(np.int64)
        others = batch.of(self.second)
        if others is None:
            return None
        rows = np.flatnonzero((ranks & others & 1 == 1) & (ranks > 0) & (others > 0))
        return rows, (ranks[rows] >> 1).astype(np.int64) * self.radix + (others[rows] >> 1)

    def candidates_of_one(self, ranks: Mapping[int, int]) -> Int32 | None:
        """The groups that one message with these ranks (by slot) could meet."""
        rank = ranks[self.slot]
        if self.shift is not None:
            return self.postings.find_one(rank >> self.shift)
        if not rank & 1:
            return None
        if self.second is None:
            return self.postings.find_one(rank >> 1)
        other = ranks.get(self.second, 0)
        return self.postings.find_one((rank >> 1) * self.radix + (other >> 1)) if other & 1 else None


def build_paths(groups: Groups, slots: tuple[Slot, ...]) -> tuple[tuple[Path, ...], Int8]:
    """The paths to all groups; and for each group, how many of its first predicates its path has answered already."""
    sizes = np.array([len(slot.constants) for slot in slots], np.int64)
    predicates, numbers = groups.predicates, np.arange(len(groups), dtype=np.int32)
    head = groups.members[groups.starts[:-1]]
    by_equality = predicates.is_equality()[head]
    slot, constant = predicates.slot[head], (predicates.low[head] >> 1).astype(np.int64)

    paths: list[Path] = []
    answered = by_equality.astype(np.int8)
    for first, second, chosen, other in _pairs(groups, head, len(slots)):
        radix = int(sizes[second])
        keys = np.where(slot[chosen] == first, constant[chosen] * radix, constant[chosen])
        keys += (predicates.low[other] >> 1) * np.where(slot[chosen] == first, 1, radix)
        postings = _postings(keys, numbers[chosen], int(sizes[first]) * radix)
        paths.append(Path(slot=first, second=second, radix=radix, postings=postings))
        answered[chosen] = 2
    for each, chosen in _split(slot, by_equality & (answered < 2)):
        postings = _postings(constant[chosen], numbers[chosen], int(sizes[each]))
        paths.append(Path(slot=each, postings=postings))
    for each, chosen in _split(slot, ~by_equality):
        paths.extend(_interval_paths(each, groups, head[chosen], numbers[chosen], 2 * int(sizes[each])))
    return tuple(paths), answered


def _pairs(groups: Groups, head: Int32, slots: int) -> Iterator[tuple[int, int, Int64, Int32]]:
    """The pairs of properties that are worth a path: both slots, the groups, and the second equality of each group."""
    sharing = np.bincount(head, minlength=len(groups.predicates))[head]
    longer = np.flatnonzero((groups.starts[1:] - groups.starts[:-1] > 1) & (sharing > CROWD))
    other = groups.members[groups.starts[longer] + 1]
    equality = groups.predicates.is_equality()
    both = equality[head[longer]] & equality[other]
    longer, other = longer[both], other[both]
    one, two = groups.predicates.slot[head[longer]], groups.predicates.slot[other]
    pair = np.minimum(one, two).astype(np.int64) * slots + np.maximum(one, two)
    kinds, counts = np.unique(pair, return_counts=True)
    for kind in kinds[np.argsort(-counts, kind="stable")][:MAX_PAIRS]:
        chosen = pair == kind
        if np.count_nonzero(chosen) >= MIN_GROUPS_OF_PAIR:
            yield int(kind) // slots, int(kind) % slots, longer[chosen], other[chosen]


def _split(slot: Int32, chosen: Bool) -> Iterator[tuple[int, Int64]]:
    """The chosen groups by the slot of their access."""
    places = np.flatnonzero(chosen)
    order = places[np.argsort(slot[places], kind="stable")]
    kinds, first = np.unique(slot[order], return_index=True)
    for kind, (start, end) in zip(kinds, pairwise([*first, len(order)]), strict=True):
        yield int(kind), order[start:end]


def _interval_paths(slot: int, groups: Groups, head: Int32, numbers: Int32, top: int) -> Iterator[Path]:
    low = groups.predicates.low[head].astype(np.int64)
    high = np.minimum(groups.predicates.high[head], top).astype(np.int64)
    # The least shift with 2**shift >= the number of ranks; frexp gives it for high - low, exactly.
    shift = np.frexp((high - low).astype(np.float64))[1].astype(np.int32)
    for each, chosen in _split(shift, np.ones(len(shift), np.bool_)):
        first, last = low[chosen] >> each, high[chosen] >> each
        wide = first != last
        keys = np.concatenate((first, last[wide]))
        filed = np.concatenate((numbers[chosen], numbers[chosen][wide]))
        yield Path(slot=slot, shift=each, postings=_postings(keys, filed, (top >> each) + 1))
