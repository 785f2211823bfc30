"""Pass two: of the candidates, those whose remaining predicates all hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from postroom.filters.matching.groups import Groups, Predicates
from postroom.filters.matching.ranked import RankedBatch
from postroom.filters.matching.rows import Bool, Int8, Int32


class SecondPass:
    """The checks of every group: its members but for the first ones, which its path has answered."""

    __slots__ = ("_checks", "_first", "_members", "_predicates")

    def __init__(self, groups: Groups, answered: Int8) -> None:
        self._predicates = groups.predicates
        self._members = groups.members
        self._first = groups.starts[:-1] + answered
        self._checks = groups.starts[1:] - self._first

    def survivors(self, batch: RankedBatch, rows: Int32, groups: Int32) -> tuple[Int32, Int32]:
        """Of the pairs (message, group), those where the group is met. One predicate of each group at a time, and
        only while all before it held."""
        met = np.ones(len(groups), np.bool_)
        step = 0
        pairs = np.flatnonzero(self._checks[groups] > step)
        while len(pairs):
            chosen = groups[pairs]
            holds = _hold(self._predicates, batch, rows[pairs], self._members[self._first[chosen] + step])
            met[pairs] = holds
            step += 1
            pairs = pairs[holds & (self._checks[chosen] > step)]
        return rows[met], groups[met]

    def met_by_one(self, ranks: Mapping[int, int], integers: Mapping[int, int], group: int) -> bool:
        """Does one message with these ranks (and values, where bitwise ANDs look at them) meet the group?"""
        predicates = self._predicates
        first = self._first.item(group)
        for number in self._members[first : first + self._checks.item(group)].tolist():
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


def _hold(predicates: Predicates, batch: RankedBatch, rows: Int32, numbers: Int32) -> Bool:
    """Does predicate ``numbers[i]`` hold for message ``rows[i]``?"""
    slot = predicates.slot[numbers]
    rank = batch.flat[batch.offset[slot] + rows]
    holds: Bool = (rank >= predicates.low[numbers]) & (rank <= predicates.high[numbers])
    if predicates.not_equals < len(predicates):
        special = np.flatnonzero(holds & (numbers >= predicates.not_equals))
        holds[special] = _special_hold(predicates, batch, rows[special], numbers[special], rank[special])
    return holds


def _special_hold(predicates: Predicates, batch: RankedBatch, rows: Int32, numbers: Int32, rank: Int32) -> Bool:
    """The same for ``!=`` and bitwise ANDs, where the property is known to be there."""
    operand = predicates.operand[numbers - predicates.not_equals]
    holds: Bool = rank != operand
    for slot, values in batch.integers.items():
        masked = np.flatnonzero((numbers >= predicates.bitwise_ands) & (predicates.slot[numbers] == slot))
        holds[masked] = values[rows[masked]] & operand[masked] != 0
    return holds
