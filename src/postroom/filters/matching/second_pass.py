"""Pass two: keep the candidates whose remaining predicates all hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from postroom.filters.matching.first_pass import Path
from postroom.filters.matching.groups import Groups, Predicates
from postroom.filters.matching.ranks import MISSING, Bool, Int8, Int32, Int64, RankedBatch


class SecondPass:
    """Checks the predicates of groups, except the first ones, which the group's path has already checked."""

    __slots__ = ("_answered", "_members", "_predicates", "_starts")

    def __init__(self, groups: Groups, answered: Int8) -> None:
        self._predicates = groups.predicates
        self._members = groups.members
        self._starts = groups.starts
        self._answered = answered

    def survivors(self, batch: RankedBatch, path: Path, rows: Int64, places: Int64) -> tuple[Int64, Int32]:
        """Return the pairs (message, group) that match, out of pairs (message, position in the path's postings)."""
        if path.checks is not None:
            numbers = path.checks.take(places)
            held = np.flatnonzero(_hold(self._predicates, batch, rows, numbers, path.checked))
            rows, places = rows.take(held), places.take(held)
        groups = path.postings.groups.take(places)
        return self.met(batch, rows, groups, step=1) if path.more else (rows, groups)

    def met(self, batch: RankedBatch, rows: Int64, groups: Int32, *, step: int = 0) -> tuple[Int64, Int32]:
        """Return the pairs (message, group) whose checks from number ``step`` on hold.

        The loop checks one predicate of each group at a time, and only while all previous ones held."""
        met = np.ones(len(groups), np.bool_)
        first = self._starts.take(groups) + self._answered.take(groups)
        checks = self._starts.take(groups + 1) - first
        pairs = np.flatnonzero(checks > step)
        while len(pairs):
            numbers = self._members.take(first.take(pairs) + step)
            holds = _hold(self._predicates, batch, rows.take(pairs), numbers)
            met[pairs] = holds
            step += 1
            pairs = pairs.compress(holds & (checks.take(pairs) > step))
        return rows.compress(met), groups.compress(met)

    def met_by_one(self, ranks: Mapping[int, int], integers: Mapping[int, int], group: int) -> bool:
        """Return True if one message with these ranks, and values for bitwise ANDs, matches the group."""
        predicates = self._predicates
        first = self._starts.item(group) + self._answered.item(group)
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


def _hold(predicates: Predicates, batch: RankedBatch, rows: Int64, numbers: Int32, slot: int | None = None) -> Bool:
    """Return whether predicate ``numbers[i]`` holds for message ``rows[i]``. ``slot`` is the common slot, if known."""
    if slot is None:
        rank = batch.flat.take(batch.offset.take(predicates.slot.take(numbers)) + rows)
    else:
        ranks = batch.of(slot)
        rank = np.full(len(rows), MISSING, np.int32) if ranks is None else ranks.take(rows)
    holds: Bool = rank >= predicates.low.take(numbers)
    holds &= rank <= predicates.high.take(numbers)
    if predicates.not_equals < len(predicates):
        special = np.flatnonzero(holds & (numbers >= predicates.not_equals))
        holds[special] = _special_hold(predicates, batch, rows[special], numbers[special], rank[special])
    return holds


def _special_hold(predicates: Predicates, batch: RankedBatch, rows: Int64, numbers: Int32, rank: Int32) -> Bool:
    """The same for ``!=`` and bitwise ANDs, if the message is known to have the property."""
    operand = predicates.operand[numbers - predicates.not_equals]
    holds: Bool = rank != operand
    for slot, values in batch.integers.items():
        masked = np.flatnonzero((numbers >= predicates.bitwise_ands) & (predicates.slot[numbers] == slot))
        holds[masked] = values[rows[masked]] & operand[masked] != 0
    return holds
