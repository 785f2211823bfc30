"""The two passes of a match: find candidate groups by a key, then check their other predicates.

A *path* finds groups by their most selective predicate:

- an equality: the key is the constant.
- two equalities, where many groups share the first: the key is the pair, so that most candidates are matches.
- an interval: ranks are divided into cells. The width of a cell is a power of two at least as wide as the interval, so
  the interval covers at most two cells, and the key is the cell. Intervals of very different widths have paths of their
  own, and every message is looked up in each path.
- an equality and an interval, where many groups share the equality: the key is the pair of constant and cell.
- presence (``!=``, exists, bitwise AND): the interval of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from postroom.filters.columns import MISSING, Bool, Int8, Int32, Int64, RankedBatch, Ranks
from postroom.filters.matching.compiled_rows import BITWISE_AND, INTERVAL, NOT_EQUAL

#: How many (message, group) pairs are checked together: enough to hide the cost of a call, few enough for the cache.
PAIRS_AT_ONCE = 1 << 17


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


# -- the first pass: candidates by key ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """A part of a key: the constant of a property, or with ``shift`` the cell of 2**shift ranks that contains the
    value. It is a number below ``size``."""

    slot: int
    size: int
    shift: int | None = None

    def to_numbers(self, ranks: Ranks) -> tuple[Int64, Bool]:
        """Return the number for each rank, and whether it has one."""
        if self.shift is None:
            return (ranks >> 1).astype(np.int64), (ranks & 1 == 1) & (ranks > 0)
        return (ranks >> self.shift).astype(np.int64), ranks >= 0

    def to_number(self, rank: int) -> int | None:
        """Return the number for one rank, if it has one."""
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
        positions = self.keys.searchsorted(keys)
        starts = self.starts.take(positions, mode="clip")
        found = self.keys.take(positions, mode="clip") == keys
        counts = np.where(found, self.starts.take(positions + 1, mode="clip") - starts, 0)
        return starts.astype(np.int64), counts.astype(np.int64)

    def find_one(self, key: int) -> Int32:
        """Return the groups of one key."""
        position = key
        if self.keys is not None:
            position = int(self.keys.searchsorted(key))
            if position == len(self.keys) or self.keys.item(position) != key:
                return self.groups[:0]
        return self.groups[self.starts.item(position) : self.starts.item(position + 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """The groups that are indexed by one or two features.

    ``checks`` has the first predicate to check for every entry of the postings. It is None if the key decides alone.
    ``checked_slot`` is the property that all of these predicates compare, if it is only one. ``has_more_checks`` is
    True if some groups have further predicates."""

    first: Feature
    second: Feature | None = None
    postings: Postings
    checks: Int32 | None
    checked_slot: int | None
    has_more_checks: bool

    def find_candidates(self, batch: RankedBatch) -> Iterator[tuple[Int64, Int64]]:
        """Yield pairs of message and position in the postings, as two arrays, in portions."""
        keys, has_key = self._find_keys(batch)
        if keys is None:
            return
        starts, counts = self.postings.find(keys)
        hit = np.flatnonzero(has_key & (counts > 0))
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

    def _find_keys(self, batch: RankedBatch) -> tuple[Int64 | None, Bool]:
        nothing = np.empty(0, np.bool_)
        ranks = batch.ranks[self.first.slot]
        if ranks is None:
            return None, nothing
        keys, has_key = self.first.to_numbers(ranks)
        if self.second is not None:
            ranks = batch.ranks[self.second.slot]
            if ranks is None:
                return None, nothing
            others, has_other = self.second.to_numbers(ranks)
            keys *= self.second.size
            keys += others
            has_key &= has_other
        return keys, has_key

    def find_candidates_of_one(self, ranks: Mapping[int, int]) -> Int32 | None:
        """Return the candidate groups of one message with these ranks by slot."""
        key = self.first.to_number(ranks[self.first.slot])
        if key is None:
            return None
        if self.second is not None:
            other = self.second.to_number(ranks.get(self.second.slot, -1))
            if other is None:
                return None
            key = key * self.second.size + other
        return self.postings.find_one(key)


# -- the second pass: the other predicates of the candidates -----------------------------------------------------------


class SecondPass:
    """Checks the predicates of groups, except the first ones, which the group's path has already checked."""

    __slots__ = ("_checked_by_path", "_members", "_predicates", "_starts")

    def __init__(self, groups: Groups, checked_by_path: Int8) -> None:
        self._predicates = groups.predicates
        self._members = groups.members
        self._starts = groups.starts
        self._checked_by_path = checked_by_path

    def check_candidates(self, batch: RankedBatch, path: Path, rows: Int64, positions: Int64) -> tuple[Int64, Int32]:
        """Return the pairs (message, group) that match, out of pairs (message, position in the path's postings)."""
        if path.checks is not None:
            numbers = path.checks.take(positions)
            passed = np.flatnonzero(_check_predicates(self._predicates, batch, rows, numbers, path.checked_slot))
            rows, positions = rows.take(passed), positions.take(passed)
        groups = path.postings.groups.take(positions)
        return self.check_groups(batch, rows, groups, step=1) if path.has_more_checks else (rows, groups)

    def check_groups(self, batch: RankedBatch, rows: Int64, groups: Int32, *, step: int = 0) -> tuple[Int64, Int32]:
        """Return the pairs (message, group) whose checks from number ``step`` on hold.

        The loop checks one predicate of each group at a time, and only while all previous ones passed."""
        passed = np.ones(len(groups), np.bool_)
        first = self._starts.take(groups) + self._checked_by_path.take(groups)
        checks = self._starts.take(groups + 1) - first
        pairs = np.flatnonzero(checks > step)
        while len(pairs):
            numbers = self._members.take(first.take(pairs) + step)
            holds = _check_predicates(self._predicates, batch, rows.take(pairs), numbers)
            passed[pairs] = holds
            step += 1
            pairs = pairs.compress(holds & (checks.take(pairs) > step))
        return rows.compress(passed), groups.compress(passed)

    def is_match(self, ranks: Mapping[int, int], integers: Mapping[int, int], group: int) -> bool:
        """Return True if one message with these ranks, and values for bitwise ANDs, matches the group."""
        predicates = self._predicates
        first = self._starts.item(group) + self._checked_by_path.item(group)
        for number in self._members[first : self._starts.item(group + 1)].tolist():
            slot = predicates.slot.item(number)
            rank = ranks.get(slot, -1)
            if not predicates.low.item(number) <= rank <= predicates.high.item(number):
                return False
            if number >= predicates.not_equals:
                operand = predicates.operand.item(number - predicates.not_equals)
                if number < predicates.bitwise_ands:
                    if rank == operand:
                        return False
                elif not integers[slot] & operand:
                    return False
        return True


def _check_predicates(
    predicates: Predicates, batch: RankedBatch, rows: Int64, numbers: Int32, slot: int | None = None
) -> Bool:
    """Return whether predicate ``numbers[i]`` holds for message ``rows[i]``. ``slot`` is the common slot, if known."""
    if slot is None:
        rank = batch.flat.take(batch.offset.take(predicates.slot.take(numbers)) + rows)
    else:
        ranks = batch.ranks[slot]
        rank = np.full(len(rows), MISSING, np.int32) if ranks is None else ranks.take(rows)
    holds: Bool = rank >= predicates.low.take(numbers)
    holds &= rank <= predicates.high.take(numbers)
    if len(predicates.operand):
        special = np.flatnonzero(holds & (numbers >= predicates.not_equals))
        holds[special] = _check_special_predicates(predicates, batch, rows[special], numbers[special], rank[special])
    return holds


def _check_special_predicates(
    predicates: Predicates, batch: RankedBatch, rows: Int64, numbers: Int32, rank: Int32
) -> Bool:
    """Return the same for ``!=`` and bitwise ANDs. Each message has the property."""
    operand = predicates.operand[numbers - predicates.not_equals]
    holds: Bool = rank != operand
    for slot, values in batch.integers.items():
        masked = np.flatnonzero((numbers >= predicates.bitwise_ands) & (predicates.slot[numbers] == slot))
        holds[masked] = values[rows[masked]] & operand[masked] != 0
    return holds
