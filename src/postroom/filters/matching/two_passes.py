"""The two passes of a match: find candidate groups by a key, then check their other predicates.

A *path* finds groups by the values of some properties. The parts of its key are *features*:

- equalities: the constants. A key has as many equalities as are needed until few groups share it.
- an interval: ranks are divided into cells. The width of a cell is a power of two at least as wide as the interval, so
  the interval covers at most two cells, and the feature is the cell. Intervals of very different widths have paths of
  their own, and every message is looked up in each path. An interval is a key alone or together with equalities.
- presence (``!=``, exists, bitwise AND): the interval of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from postroom.filters.columns import MISSING, Bool, Int8, Int32, Int64
from postroom.filters.matching.compiled_rows import BITWISE_AND, INTERVAL, NOT_EQUAL
from postroom.filters.matching.ranked_batch import RankedBatch

#: How many (message, group) pairs are checked together: enough to hide the cost of a call, few enough for the cache.
PAIRS_AT_ONCE = 1 << 17
#: The pairs of several paths are checked together until there are so many that the cost of a call does not matter.
MIN_PAIRS = 1 << 13

#: Computing a predicate for a whole batch has a fixed cost, about as high as computing it for this many messages.
COST_OF_PREDICATE = 1_000

UInt64 = npt.NDArray[np.uint64]

_BITS: UInt64 = np.uint64(1) << np.arange(64, dtype=np.uint64)


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
    value. It is a number below ``size``. The last number stands for messages that have no such constant or value."""

    slot: int
    size: int
    shift: int | None = None

    def to_numbers(self, batch: RankedBatch) -> Int64 | None:
        """Return the number for each message, or None if no message has the property."""
        ranks = batch.ranks[self.slot]
        if ranks is None:
            return None
        numbers = batch.numbers.get((self.slot, self.shift))
        if numbers is None:
            numbers = (ranks >> (1 if self.shift is None else self.shift)).astype(np.int64)
            numbers[ranks < 0 if self.shift is not None else (ranks & 1 == 0) | (ranks < 0)] = self.size - 1
            batch.numbers[self.slot, self.shift] = numbers
        return numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """The groups that are indexed by the same features, and where they are in the postings of the segment.

    The groups of a key are at ``starts[i]`` to before ``starts[i + 1]``. If ``keys`` is None it is dense: ``starts``
    has an entry for every possible key, and *i* is the key. Otherwise *i* is the position of the key in ``keys``.
    ``checks`` is the highest number of predicates that remain to be checked for a group. ``checked_slot`` is the
    property that the first of them compares, if it is the same for all groups."""

    features: tuple[Feature, ...]
    keys: Int64 | None
    starts: Int32
    checks: int
    checked_slot: int | None

    def find_candidates(self, batch: RankedBatch) -> Iterator[tuple[Int64, Int64]]:
        """Yield pairs of message and position in the postings, as two arrays, in portions."""
        keys = self._find_keys(batch)
        if keys is None:
            return
        starts, counts = self._find_positions(keys)
        hit = np.flatnonzero(counts > 0)
        starts, counts = starts.take(hit).astype(np.int64), counts.take(hit).astype(np.int64)
        ends = np.cumsum(counts)
        at = 0
        while at < len(hit):
            done = int(ends[at - 1]) if at else 0
            to = max(at + 1, int(np.searchsorted(ends, done + PAIRS_AT_ONCE, side="right")))
            chosen = slice(at, to)
            # The positions starts[i], starts[i] + 1, ... of each message, one after the other.
            pairs = np.repeat(np.arange(at, to), counts[chosen])
            positions = (starts - (ends - counts - done)).take(pairs)
            positions += np.arange(len(pairs))
            yield hit.take(pairs), positions
            at = to

    def _find_keys(self, batch: RankedBatch) -> Int64 | None:
        """Return the key of each message, or None if no message has one of the properties."""
        if any(batch.ranks[feature.slot] is None for feature in self.features):
            return None
        keys: Int64 | None = None
        for feature in self.features:
            numbers = feature.to_numbers(batch)
            if keys is None or numbers is None:
                keys = numbers
            else:
                keys = keys * feature.size
                keys += numbers
        return keys

    def _find_positions(self, keys: Int64) -> tuple[Int32, Int32]:
        """Return the position of the first group of each key, and the number of groups."""
        if self.keys is None:
            starts = self.starts.take(keys, mode="clip")
            return starts, self.starts[1:].take(keys, mode="clip") - starts
        positions = self.keys.searchsorted(keys)
        found = self.keys.take(positions, mode="clip") == keys
        starts = self.starts.take(positions, mode="clip")
        return starts, (self.starts.take(positions + 1, mode="clip") - starts) * found

    def find_candidates_of_one(self, ranks: Mapping[int, int]) -> tuple[int, int] | None:
        """Return the first and the last position, plus one, of the candidates of a message with these ranks by slot.
        Return None if there are none."""
        key = 0
        for feature in self.features:
            rank = ranks.get(feature.slot, MISSING)
            if rank < 0 or (feature.shift is None and not rank & 1):
                return None
            key = key * feature.size + (rank >> (1 if feature.shift is None else feature.shift))
        if self.keys is not None:
            position = int(self.keys.searchsorted(key))
            if position == len(self.keys) or self.keys.item(position) != key:
                return None
            key = position
        start, end = self.starts.item(key), self.starts.item(key + 1)
        return (start, end) if start < end else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Pairs of a message and a position in the postings. The other fields are those of their paths."""

    rows: Int64
    positions: Int64
    checks: int
    checked_slot: int | None


def find_candidates(paths: Iterable[Path], batch: RankedBatch) -> Iterator[Candidates]:
    """Yield the candidates of a batch, in portions.

    Several paths share a portion if each finds few candidates, because a check of a portion has a fixed cost."""
    pending: list[tuple[Path, Int64, Int64]] = []
    for path in paths:
        for rows, positions in path.find_candidates(batch):
            if not path.checks:
                yield _join_candidates([(path, rows, positions)])
                continue
            pending.append((path, rows, positions))
            if sum(len(rows) for _, rows, _ in pending) >= MIN_PAIRS:
                yield _join_candidates(pending)
                pending = []
    if pending:
        yield _join_candidates(pending)


def _join_candidates(found: list[tuple[Path, Int64, Int64]]) -> Candidates:
    paths, rows, positions = zip(*found, strict=True)
    slots = {path.checked_slot for path in paths}
    return Candidates(
        rows=rows[0] if len(rows) == 1 else np.concatenate(rows),
        positions=positions[0] if len(rows) == 1 else np.concatenate(positions),
        checks=max(path.checks for path in paths),
        checked_slot=slots.pop() if len(slots) == 1 else None,
    )


# -- the second pass: the other predicates of the candidates -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Postings:
    """The groups that paths find, and the first predicate to check for each: ALWAYS if the key decides alone."""

    groups: Int32
    checks: Int32


class SecondPass:
    """Checks the predicates of groups, except the first ones, which the group's path has already checked."""

    __slots__ = ("_checked_by_path", "_members", "_postings", "_predicates", "_signatures", "_starts")

    def __init__(self, groups: Groups, postings: Postings, checked_by_path: Int8) -> None:
        self._predicates = groups.predicates
        self._members = groups.members
        self._starts = groups.starts
        self._postings = postings
        self._checked_by_path = checked_by_path
        self._signatures: UInt64 | None = None

    def get_groups(self, ranges: Sequence[tuple[int, int]]) -> Int32:
        """Return the groups at these positions of the postings."""
        found = [self._postings.groups[start:end] for start, end in ranges]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def check_candidates(self, outcomes: Outcomes, found: Candidates) -> tuple[Int64, Int32]:
        """Return the pairs (message, group) that match."""
        rows, positions = found.rows, found.positions
        signatures = outcomes.find_signatures() if found.checks else None
        if signatures is not None:
            required = self._get_signatures().take(positions)
            passed = np.flatnonzero(signatures.take(rows) & required == required)
            return self.check_groups(outcomes, rows.take(passed), self._postings.groups.take(positions.take(passed)))
        if found.checks:
            numbers = self._postings.checks.take(positions)
            passed = np.flatnonzero(outcomes.get(rows, numbers, found.checked_slot))
            rows, positions = rows.take(passed), positions.take(passed)
        groups = self._postings.groups.take(positions)
        return self.check_groups(outcomes, rows, groups, step=1) if found.checks > 1 else (rows, groups)

    def _get_signatures(self) -> UInt64:
        """Return the bits of all predicates of the group at each position of the postings."""
        if self._signatures is None:
            of_group = np.bitwise_or.reduceat(_BITS.take(self._members & 63), self._starts[:-1])
            self._signatures = of_group.take(self._postings.groups)
        return self._signatures

    def check_groups(self, outcomes: Outcomes, rows: Int64, groups: Int32, *, step: int = 0) -> tuple[Int64, Int32]:
        """Return the pairs (message, group) whose checks from number ``step`` on hold.

        The loop checks one predicate of each group at a time, and only while all previous ones passed."""
        passed = np.ones(len(groups), np.bool_)
        first = self._starts.take(groups) + self._checked_by_path.take(groups)
        checks = self._starts.take(groups + 1) - first
        pairs = np.flatnonzero(checks > step)
        while len(pairs):
            numbers = self._members.take(first.take(pairs) + step)
            holds = outcomes.get(rows.take(pairs), numbers)
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


class Outcomes:
    """Whether predicates hold for the messages of a batch.

    If many have been computed, messages get *signatures* of 64 bits: bit *i* is set if one of the predicates *i*,
    *i* + 64, *i* + 128 and so on holds. A group can match only if all bits of its predicates are set, which excludes
    most candidates at once."""

    def __init__(self, predicates: Predicates, batch: RankedBatch) -> None:
        self._predicates = predicates
        self._batch = batch
        self._computed = 0
        self._signatures: UInt64 | None = None

    def find_signatures(self) -> UInt64 | None:
        """Return the signature of each message, or None if this costs more than what has been computed before."""
        rows = self._batch.rows
        if self._signatures is None and self._computed > len(self._predicates) * (rows + COST_OF_PREDICATE):
            found, every = np.zeros((64, rows), np.bool_), np.arange(rows)
            for number, slot in enumerate(self._predicates.slot.tolist()):
                found[number & 63] |= self._compute(every, np.full(rows, number, np.int32), slot)
            self._signatures = np.bitwise_or.reduce(np.where(found, _BITS[:, np.newaxis], np.uint64(0)))
        return self._signatures

    def get(self, rows: Int64, numbers: Int32, slot: int | None = None) -> Bool:
        """Return whether predicate ``numbers[i]`` holds for message ``rows[i]``. ``slot`` is that of all predicates, if
        it is known."""
        self._computed += len(rows)
        return self._compute(rows, numbers, slot)

    def _compute(self, rows: Int64, numbers: Int32, slot: int | None) -> Bool:
        predicates, batch = self._predicates, self._batch
        ranks = None if slot is None else batch.ranks[slot]
        if ranks is None:
            rank = batch.flat.take(batch.offset.take(predicates.slot.take(numbers)) + rows)
        else:
            rank = ranks.take(rows)
        holds: Bool = rank >= predicates.low.take(numbers)
        holds &= rank <= predicates.high.take(numbers)
        if len(predicates.operand):
            special = np.flatnonzero(holds & (numbers >= predicates.not_equals))
            holds[special] = self._compute_special(rows[special], numbers[special], rank[special])
        return holds

    def _compute_special(self, rows: Int64, numbers: Int32, rank: Int32) -> Bool:
        """Return the same for ``!=`` and bitwise ANDs. Each message has the property."""
        predicates = self._predicates
        operand = predicates.operand[numbers - predicates.not_equals]
        holds: Bool = rank != operand
        for slot, values in self._batch.integers.items():
            masked = np.flatnonzero((numbers >= predicates.bitwise_ands) & (predicates.slot[numbers] == slot))
            holds[masked] = values[rows[masked]] & operand[masked] != 0
        return holds
