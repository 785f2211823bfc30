"""The predicates of many subscriptions as columns: one row per predicate, constants as ranks.

A segment is built from these rows, which come from filters or from other segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from postroom.filters.columns import (
    UNBOUNDED,
    Bool,
    Int8,
    Int32,
    Int64,
    Positions,
    Slot,
    build_constants,
    merge_constants,
)
from postroom.filters.expression import Filter, Operator
from postroom.values import Value, ValueType

#: The kinds of rows. All comparisons except the last two are intervals of ranks.
INTERVAL, NOT_EQUAL, BITWISE_AND = 0, 1, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Subscriptions (``ids``, ascending), their AND-groups (``owner``: a position in ``ids``), and a row per predicate.

    A row holds for ranks from ``low`` to ``high``. A NOT_EQUAL row does not hold for the rank ``operand``. A
    BITWISE_AND row holds only for values that have a bit of ``operand``."""

    slots: tuple[Slot, ...]
    ids: Int64
    owner: Int32
    group: Int32
    kind: Int8
    slot: Int32
    low: Int32
    high: Int32
    operand: Int64


def build_rows(filters: Mapping[int, Filter]) -> Rows:
    """Build the rows of subscriptions, given by id."""
    ids = sorted(filters)
    owner: list[int] = []
    group: list[int] = []
    slot: list[int] = []
    operator: list[int] = []
    operand: dict[int, int] = {}
    numbers: dict[tuple[str, ValueType], int] = {}
    compared: list[list[int]] = []
    values: list[list[Value]] = []
    for position, subscription in enumerate(ids):
        for predicates in filters[subscription].groups:
            for predicate in predicates:
                prop = predicate.property
                number = numbers.setdefault((prop.key, prop.value_type), len(numbers))
                if number == len(compared):
                    compared.append([])
                    values.append([])
                if predicate.operator is Operator.BITAND:
                    operand[len(group)] = predicate.value  # type: ignore[assignment]
                elif predicate.value is not None:
                    compared[number].append(len(group))
                    values[number].append(predicate.value)
                group.append(len(owner))
                slot.append(number)
                operator.append(predicate.operator)
            owner.append(position)

    slots = []
    ranks = np.zeros(len(group), np.int32)
    for (key, value_type), rows, constants in zip(numbers, compared, values, strict=True):
        ordered, positions = build_constants(value_type, constants)
        slots.append(Slot(key=key, value_type=value_type, constants=ordered))
        ranks[rows] = 2 * positions + 1
    kind, low, high = _to_intervals(np.array(operator, np.int8), ranks)
    operands = np.where(kind == NOT_EQUAL, ranks, 0).astype(np.int64)
    operands[list(operand)] = list(operand.values())
    return Rows(
        slots=tuple(slots),
        ids=np.array(ids, np.int64),
        owner=np.array(owner, np.int32),
        group=np.array(group, np.int32),
        kind=kind,
        slot=np.array(slot, np.int32),
        low=low,
        high=high,
        operand=operands,
    )


def _to_intervals(operator: Int8, rank: Int32) -> tuple[Int8, Int32, Int32]:
    """Return kind, low and high of each row, from its operator and the rank of its constant."""
    kind = np.zeros(len(operator), np.int8)
    kind[operator == Operator.NE] = NOT_EQUAL
    kind[operator == Operator.BITAND] = BITWISE_AND
    low = np.zeros(len(operator), np.int32)
    high = np.full(len(operator), UNBOUNDED, np.int32)
    for above, shift in ((Operator.EQ, 0), (Operator.GE, 0), (Operator.GT, 1)):
        chosen = operator == above
        low[chosen] = rank[chosen] + shift
    for below, shift in ((Operator.EQ, 0), (Operator.LE, 0), (Operator.LT, -1)):
        chosen = operator == below
        high[chosen] = rank[chosen] + shift
    return kind, low, high


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate the rows of several segments. No subscription may be in two of them."""
    if len(parts) == 1:
        return parts[0]
    slots, numbers, new_positions = _merge_slots(parts)
    ids = np.sort(np.concatenate([part.ids for part in parts]))
    moved = [_move_ranks(part, new_positions[i]) for i, part in enumerate(parts)]
    groups_before = np.cumsum([0, *(len(part.owner) for part in parts)])
    return Rows(
        slots=slots,
        ids=ids,
        owner=np.concatenate([np.searchsorted(ids, part.ids)[part.owner] for part in parts]).astype(np.int32),
        group=np.concatenate([part.group + groups_before[i] for i, part in enumerate(parts)]).astype(np.int32),
        kind=np.concatenate([part.kind for part in parts]),
        slot=np.concatenate([numbers[i][part.slot] for i, part in enumerate(parts)]),
        low=np.concatenate([low for low, _, _ in moved]),
        high=np.concatenate([high for _, high, _ in moved]),
        operand=np.concatenate([operand for _, _, operand in moved]),
    )


def _merge_slots(parts: Sequence[Rows]) -> tuple[tuple[Slot, ...], list[Int32], list[list[Positions]]]:
    """Return the distinct slots, and for each part the new numbers of its slots and new positions of its constants."""
    merged: dict[tuple[str, ValueType], list[tuple[int, int]]] = {}
    for i, part in enumerate(parts):
        for j, slot in enumerate(part.slots):
            merged.setdefault((slot.key, slot.value_type), []).append((i, j))
    numbers = [np.zeros(len(part.slots), np.int32) for part in parts]
    new_positions: list[list[Positions]] = [[np.empty(0, np.int64)] * len(part.slots) for part in parts]
    slots = []
    for number, ((key, value_type), users) in enumerate(merged.items()):
        constants, moved = merge_constants(value_type, [parts[i].slots[j].constants for i, j in users])
        slots.append(Slot(key=key, value_type=value_type, constants=constants))
        for (i, j), positions in zip(users, moved, strict=True):
            numbers[i][j] = number
            new_positions[i][j] = positions
    return tuple(slots), numbers, new_positions


def _move_ranks(part: Rows, positions: list[Positions]) -> tuple[Int32, Int32, Int64]:
    """Return low, high and operand of a part's rows, as ranks among the merged constants.

    A bound is the rank of a constant, or directly below (``<``) or above (``>``) it. It moves with the constant."""
    if not part.slots:
        return part.low, part.high, part.operand
    first = np.cumsum([0, *(len(of_slot) for of_slot in positions)])[:-1][part.slot]
    position = np.concatenate(positions)

    def rank(bound: Int32 | Int64, constant: Int32 | Int64, chosen: Bool) -> Int64:
        old, row_first = constant[chosen].astype(np.int64), first[chosen]
        moved = bound.astype(np.int64)
        moved[chosen] += 2 * (position[row_first + old] - old)
        return moved

    low = rank(part.low, (part.low - 1) >> 1, part.low > 0)
    high = rank(part.high, part.high >> 1, part.high != UNBOUNDED)
    operand = rank(part.operand, part.operand >> 1, part.kind == NOT_EQUAL)
    return low.astype(np.int32), high.astype(np.int32), operand
