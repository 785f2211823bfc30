"""The ranks of the values of a batch, for all messages at once or for each message alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from postroom.filters.columns import MISSING, Columns, Int64, Ranks, Slot, to_integers, to_plain_column, to_value_type
from postroom.values import Value, ValueType

#: Messages with the same ranks are matched once if at most this share of the batch is distinct.
MAX_DISTINCT_SHARE = 0.75
#: Counting distinct messages costs time too. It is skipped if more than this share of a sample is distinct.
SAMPLE = 1_024
MAX_DISTINCT_IN_SAMPLE = 0.95


@dataclass(frozen=True, kw_only=True)
class RankedBatch:
    """Ranks by slot and message, and the values of the slots that bitwise ANDs need. The ranks of a slot are None if no
    message has a value."""

    rows: int
    ranks: Sequence[Ranks | None]
    integers: dict[int, Int64]
    numbers: dict[tuple[int, int | None], Int64] = field(default_factory=dict)
    """The parts of keys that were computed from the ranks of a slot. Several paths use them."""

    @cached_property
    def flat(self) -> Ranks:
        """All ranks in one array: a row of MISSING, then a row for each slot that has values."""
        return np.concatenate((np.full(self.rows, MISSING, np.int32), *(r for r in self.ranks if r is not None)))

    @cached_property
    def offset(self) -> Int64:
        """The start of each slot's row in ``flat``."""
        present = np.array([ranks is not None for ranks in self.ranks], np.int64)
        return np.cumsum(present) * present * self.rows

    def deduplicate(self) -> tuple[RankedBatch, Int64] | None:
        """Return the distinct messages, and the number of each message among them. None if most messages are
        distinct."""
        if self.rows > SAMPLE and len(np.unique(self._number_messages(SAMPLE))) > SAMPLE * MAX_DISTINCT_IN_SAMPLE:
            return None
        _, first, inverse = np.unique(self._number_messages(self.rows), return_index=True, return_inverse=True)
        if len(first) > self.rows * MAX_DISTINCT_SHARE:
            return None
        ranks = [None if ranks is None else ranks[first] for ranks in self.ranks]
        integers = {slot: values[first] for slot, values in self.integers.items()}
        return RankedBatch(rows=len(first), ranks=ranks, integers=integers), inverse

    def _number_messages(self, rows: int) -> Int64:
        """Return a number for each of the first messages, which is the same for equal messages."""
        numbers, kinds = np.zeros(rows, np.int64), 1
        for column, radix in self._list_features(rows):
            if kinds * radix >= 2**62:
                distinct, numbers = np.unique(numbers, return_inverse=True)
                kinds = len(distinct)
            numbers = numbers * radix + column
            kinds *= radix
        return numbers

    def _list_features(self, rows: int) -> list[tuple[Int64, int]]:
        """Return all columns that distinguish the first messages, as numbers from 0 to below a radix."""
        features = []
        for ranks in self.ranks:
            if ranks is not None:
                column = ranks[:rows].astype(np.int64) + 1
                features.append((column, int(column.max()) + 1))
        for values in self.integers.values():
            distinct, column = np.unique(values[:rows], return_inverse=True)
            features.append((column, len(distinct)))
        return features


def encode_text_columns(columns: Columns) -> Columns:
    """Dictionary-encode the text columns once, because every segment needs that."""
    return {key: _encode_text(column) for key, column in columns.items()}


def _encode_text(column: pa.Array | Value) -> pa.Array | Value:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array) or pa.types.is_dictionary(column.type):
        return column
    return column.dictionary_encode() if to_value_type(column.type) is ValueType.STR else column


def rank_batch(slots: Sequence[Slot], masked: Sequence[int], columns: Columns, rows: int) -> RankedBatch:
    """Rank the columns of a batch. ``masked`` are the slots that bitwise ANDs need."""
    typed = [_select_typed(slot, columns.get(slot.key), rows) for slot in slots]
    return RankedBatch(
        rows=rows,
        ranks=[
            None if value is None else _rank_column(slot, value, rows) for slot, value in zip(slots, typed, strict=True)
        ],
        integers={slot: _get_integers(typed[slot], rows) for slot in masked},
    )


def _select_typed(slot: Slot, column: pa.Array | Value | None, rows: int) -> pa.Array | Value | None:
    """Return the column or value of a slot if it has the slot's type, otherwise None."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not isinstance(column, pa.Array):
        return column if type(column) is slot.value_type.python_type else None
    if len(column) != rows:
        raise ValueError(f"The column {slot.key} has {len(column)} values for {rows} messages.")
    if to_value_type(column.type) is not slot.value_type or column.null_count == rows:
        return None
    return column


def _rank_column(slot: Slot, column: pa.Array | Value, rows: int) -> Ranks:
    if isinstance(column, pa.Array):
        return slot.constants.rank_column(column)
    return np.full(rows, slot.constants.rank_value(column), np.int32)


def _get_integers(column: pa.Array | Value | None, rows: int) -> Int64:
    if isinstance(column, pa.Array):
        return to_integers(column)
    return np.full(rows, column or 0, np.int64)


def rank_messages(
    slots: Mapping[str, Sequence[tuple[int, Slot]]], columns: Columns, rows: int
) -> list[tuple[dict[int, int], dict[int, int]]]:
    """Return for each message its ranks, and its integers, by the numbers of slots. ``slots`` are those of each key.

    This is faster than ``rank_batch`` if the columns have few values: all columns of a type are converted together."""
    messages: list[tuple[dict[int, int], dict[int, int]]] = [({}, {}) for _ in range(rows)]
    by_type: dict[ValueType, list[tuple[int, Slot, pa.Array]]] = {}
    for key, column in columns.items():
        for number, slot in slots.get(key, ()):
            typed = _select_typed(slot, column, rows)
            if isinstance(typed, pa.Array):
                by_type.setdefault(slot.value_type, []).append((number, slot, to_plain_column(typed, slot.value_type)))
            elif typed is not None:
                rank = slot.constants.rank_value(typed)
                for ranks, integers in messages:
                    ranks[number] = rank
                    integers[number] = typed  # type: ignore[assignment]
    for value_type, found in by_type.items():
        values = pa.concat_arrays([typed for _, _, typed in found])
        positions = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist()
        if value_type is ValueType.DATETIME:
            values = values.cast(pa.int64())
        for position, value in zip(positions, values.drop_null().to_pylist(), strict=True):
            of_type, row = divmod(position, rows)
            number, slot, _ = found[of_type]
            messages[row][0][number] = slot.constants.rank_value(value)
            if value_type is ValueType.INT:
                messages[row][1][number] = value
    return messages


def count_values(columns: Columns, rows: int) -> float:
    """Return how many messages have a value, as the mean of all columns."""
    counts = [
        rows - column.null_count if isinstance(column, pa.Array | pa.ChunkedArray) else rows
        for column in columns.values()
    ]
    return sum(counts) / max(1, len(counts))
