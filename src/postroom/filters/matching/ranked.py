"""A batch of messages as ranks: for every property that predicates compare, the rank of each message's value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from postroom.filters.columns import Columns, value_type_of_column
from postroom.filters.matching.constants import MISSING, Ranks, integers
from postroom.filters.matching.rows import Int64, Slot
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

    def of(self, slot: int) -> Ranks | None:
        return self.ranks[slot]

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
        """Return the distinct messages, and the number of each message among them. None if it is not worth it."""
        alike, kinds = np.zeros(self.rows, np.int64), 1
        for column, radix in self._features():
            if kinds * radix >= 2**62:
                distinct, alike = np.unique(alike, return_inverse=True)
                kinds = len(distinct)
            alike = alike * radix + column
            kinds *= radix
        if self.rows > SAMPLE and len(np.unique(alike[:SAMPLE])) > SAMPLE * MAX_DISTINCT_IN_SAMPLE:
            return None
        _, first, alike = np.unique(alike, return_index=True, return_inverse=True)
        if len(first) > self.rows * MAX_DISTINCT_SHARE:
            return None
        ranks = [None if ranks is None else ranks[first] for ranks in self.ranks]
        numbers = {slot: values[first] for slot, values in self.integers.items()}
        return RankedBatch(rows=len(first), ranks=ranks, integers=numbers), alike

    def _features(self) -> list[tuple[Int64, int]]:
        """Return all columns that distinguish messages, as numbers from 0 to below a radix."""
        features = []
        for ranks in self.ranks:
            if ranks is not None:
                column = ranks.astype(np.int64) + 1
                features.append((column, int(column.max()) + 1))
        for values in self.integers.values():
            distinct, column = np.unique(values, return_inverse=True)
            features.append((column, len(distinct)))
        return features


def encode_text_columns(columns: Columns, keys: Iterable[str]) -> Columns:
    """Dictionary-encode the text columns of these properties once, because every segment needs that."""
    encoded = dict(columns)
    for key in keys:
        column = columns.get(key)
        if isinstance(column, pa.ChunkedArray):
            encoded[key] = column = column.combine_chunks()
        if (
            isinstance(column, pa.Array)
            and value_type_of_column(column.type) is ValueType.STR
            and not pa.types.is_dictionary(column.type)
        ):
            encoded[key] = column.dictionary_encode()
    return encoded


def rank_batch(slots: Sequence[Slot], masked: Sequence[int], columns: Columns, rows: int) -> RankedBatch:
    """Rank the columns of a batch. ``masked`` are the slots that bitwise ANDs need."""
    held = [_typed_column(slot, columns.get(slot.key), rows) for slot in slots]
    return RankedBatch(
        rows=rows,
        ranks=[None if value is None else _ranks(slot, value, rows) for slot, value in zip(slots, held, strict=True)],
        integers={slot: _integers(held[slot], rows) for slot in masked},
    )


def _typed_column(slot: Slot, given: pa.Array | Value | None, rows: int) -> pa.Array | Value | None:
    """Return the column or value of a slot if it has the slot's type, otherwise None."""
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if not isinstance(given, pa.Array):
        return given if type(given) is slot.value_type.python_type else None
    if len(given) != rows:
        raise ValueError(f"The column {slot.key} has {len(given)} values for {rows} messages.")
    if value_type_of_column(given.type) is not slot.value_type or given.null_count == rows:
        return None
    return given


def _ranks(slot: Slot, held: pa.Array | Value, rows: int) -> Ranks:
    if isinstance(held, pa.Array):
        return slot.constants.rank_column(held)
    return np.full(rows, slot.constants.rank_value(held), np.int32)


def _integers(held: pa.Array | Value | None, rows: int) -> Int64:
    if isinstance(held, pa.Array):
        return integers(held)
    return np.full(rows, held or 0, np.int64)
