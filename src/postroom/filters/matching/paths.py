"""Paths: look up the candidate groups of a message by a key that is computed from its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from postroom.filters.matching.constants import Ranks
from postroom.filters.matching.groups import changes
from postroom.filters.matching.ranked import RankedBatch
from postroom.filters.matching.rows import Bool, Int32, Int64

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
