"""The promoted values of a batch as columns, and the ranks of these values among the constants of filters.

    {"Orders#Region": pa.array(["EU", None, "US"]), BTS.ReceivePortName.key: "OrdersIn"}

A column is an Arrow array, or one value for all messages. A null means that the message does not have the property
promoted. A column or a single value whose type is not that of its property matches no filter.

A *rank* is the position of a value among the constants that one property is compared with. The constants are sorted and
distinct. A value that equals constant *i* has rank 2*i* + 1, a value between constants *i* - 1 and *i* has rank 2*i*,
and a missing value has rank -1. So ``x >= c`` is an interval of ranks for text, decimals and instants as well as for
numbers, and each value is looked up once for all predicates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from postroom.errors import BadValue
from postroom.values import EPOCH, MICROSECOND, Value, ValueType, type_of

#: The promoted values of a batch by property key.
Columns = Mapping[str, pa.Array | Value]

Int8 = npt.NDArray[np.int8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Ranks = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]

_ARROW_TYPES = {
    ValueType.STR: pa.string(),
    ValueType.INT: pa.int64(),
    # 38 digits on either side of the point, so that every Decimal of the domain has one exact form.
    ValueType.DECIMAL: pa.decimal256(76, 38),
    ValueType.FLOAT: pa.float64(),
    ValueType.BOOL: pa.bool_(),
    ValueType.DATETIME: pa.timestamp("us", "UTC"),
}

MISSING = -1
#: The upper end of an interval that has none.
UNBOUNDED = 2**31 - 1

_DECIMAL_SCALE = 10**38
_DECIMAL_OFFSET = 1 << 255


def to_arrow_type(value_type: ValueType) -> pa.DataType:
    """Return the Arrow type of a column of such values: ``to_arrow_type(ValueType.INT)`` is int64."""
    return _ARROW_TYPES[value_type]


def to_value_type(data_type: pa.DataType) -> ValueType | None:
    """Return the value type of a column of this Arrow type, in any width and encoding. None if it has no value type.

    A timestamp without a time zone is not an instant, and an unsigned 64-bit integer is outside the domain of int."""
    if kinds.is_dictionary(data_type):
        return to_value_type(data_type.value_type)
    if kinds.is_string(data_type) or kinds.is_large_string(data_type) or kinds.is_string_view(data_type):
        return ValueType.STR
    if kinds.is_integer(data_type) and not kinds.is_uint64(data_type):
        return ValueType.INT
    if kinds.is_decimal(data_type):
        return ValueType.DECIMAL
    if kinds.is_floating(data_type):
        return ValueType.FLOAT
    if kinds.is_boolean(data_type):
        return ValueType.BOOL
    if kinds.is_timestamp(data_type) and data_type.tz is not None:
        return ValueType.DATETIME
    return None


def to_plain_column(column: pa.Array, value_type: ValueType) -> pa.Array:
    """Convert a column of this value type, in any width, to the value type's own Arrow type."""
    wanted = to_arrow_type(value_type)
    return column if column.type == wanted else column.cast(wanted, safe=False)


def build_columns(batch: Sequence[Mapping[str, Value]]) -> dict[str, pa.Array]:
    """Build columns from the promoted values of messages, one mapping per message.

    Raise BadValue if two messages have different types for one property."""
    found: dict[str, ValueType] = {}
    for promoted in batch:
        for key, value in promoted.items():
            value_type = type_of(value)
            if found.setdefault(key, value_type) is not value_type:
                raise BadValue(f"{key} is {found[key].noun} in one message and {value!r} in another.")
    return {
        key: pa.array([promoted.get(key) for promoted in batch], to_arrow_type(value_type))
        for key, value_type in found.items()
    }


# -- ranks of values -------------------------------------------------------------------------------------------------


class Constants(Protocol):
    """The sorted, distinct constants of one property."""

    def __len__(self) -> int: ...

    def rank_value(self, value: Any) -> int:
        """Return the rank of one value of the property's type."""
        ...

    def rank_column(self, column: pa.Array) -> Ranks:
        """Return the rank of every value of a column, MISSING for a null."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """A property that predicates of a segment compare, with all its constants."""

    key: str
    value_type: ValueType
    constants: Constants


def build_constants(value_type: ValueType, values: Sequence[Value]) -> tuple[Constants, Positions]:
    """Return the distinct constants of ``values``, and the position of each value among them."""
    if value_type is ValueType.STR:
        text = TextConstants(sorted(set(values)))  # type: ignore[arg-type]
        return text, text.find_positions(values)  # type: ignore[arg-type]
    ordered, positions = np.unique(
        _to_sortable(value_type, pa.array(values, to_arrow_type(value_type))), return_inverse=True
    )
    return OrderedConstants(value_type, ordered), positions


def merge_constants(value_type: ValueType, parts: Sequence[Constants]) -> tuple[Constants, list[Positions]]:
    """Merge the constants of several segments. Also return the new positions of each part's constants."""
    if value_type is ValueType.STR:
        texts = [part.texts for part in parts if isinstance(part, TextConstants)]
        text = TextConstants(sorted(set().union(*texts)))
        return text, [text.find_positions(part) for part in texts]
    arrays = [part.ordered for part in parts if isinstance(part, OrderedConstants)]
    ordered = np.unique(np.concatenate(arrays))
    return OrderedConstants(value_type, ordered), [np.searchsorted(ordered, part) for part in arrays]


class TextConstants:
    """Constants of a str property, in code point order, which is Python's own."""

    __slots__ = ("texts",)

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def rank_value(self, value: str) -> int:
        position = bisect_left(self.texts, value)
        return 2 * position + (position < len(self.texts) and self.texts[position] == value)

    def rank_column(self, column: pa.Array) -> Ranks:
        # Message types and ports repeat within a batch, so each distinct text is looked up only once.
        encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
        rank = self.rank_value
        ranks = [MISSING if text is None else rank(text) for text in encoded.dictionary.to_pylist()]
        # A null has no index: -1 selects the last rank, which is MISSING.
        positions: Positions = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        by_position: Ranks = np.array([*ranks, MISSING], np.int32)
        return by_position[positions]

    def find_positions(self, values: Sequence[str]) -> Positions:
        by_text = {text: position for position, text in enumerate(self.texts)}
        return np.fromiter((by_text[value] for value in values), np.int64, len(values))


class OrderedConstants:
    """Constants of any other property, as an array that sorts like the values."""

    __slots__ = ("ordered", "value_type")

    def __init__(self, value_type: ValueType, ordered: npt.NDArray[Any]) -> None:
        self.value_type = value_type
        self.ordered = ordered

    def __len__(self) -> int:
        return len(self.ordered)

    def rank_value(self, value: Value) -> int:
        wanted = _to_sortable_value(value)
        position = int(self.ordered.searchsorted(wanted))
        return 2 * position + bool(position < len(self.ordered) and self.ordered[position] == wanted)

    def rank_column(self, column: pa.Array) -> Ranks:
        column = to_plain_column(column, self.value_type)
        if len(self.ordered):
            values = _to_sortable(self.value_type, column)
            positions = self.ordered.searchsorted(values)
            equal = self.ordered.take(positions, mode="clip") == values
            ranks: Ranks = (2 * positions + equal).astype(np.int32)
        else:
            ranks = np.zeros(len(column), np.int32)
        if column.null_count:
            ranks[column.is_null().to_numpy(zero_copy_only=False)] = MISSING
        return ranks


def to_integers(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the values of an int column, 0 for a null: it has no bit in common with any mask."""
    numbers: npt.NDArray[np.int64] = _to_sortable(ValueType.INT, to_plain_column(column, ValueType.INT))
    return numbers


def _to_sortable(value_type: ValueType, column: pa.Array) -> npt.NDArray[Any]:
    """Convert a column to an array that NumPy sorts like the values. A null becomes any value."""
    match value_type:
        case ValueType.DECIMAL:
            return _to_sortable_decimals(column)
        case ValueType.BOOL:
            column = column.cast(pa.int8())
        case ValueType.DATETIME:
            column = column.cast(pa.int64())
    numbers: npt.NDArray[Any] = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
    return numbers


def _to_sortable_decimals(column: pa.Array) -> npt.NDArray[np.bytes_]:
    """Convert 256-bit integers to 32 big-endian bytes with the sign bit inverted, which sort like the integers."""
    if not len(column):
        return np.empty(0, "S32")
    words = np.frombuffer(column.buffers()[1], "<u8")[4 * column.offset : 4 * (column.offset + len(column))]
    big_endian = words.reshape(-1, 4)[:, ::-1].copy()
    big_endian[:, 0] ^= np.uint64(1 << 63)
    return big_endian.astype(">u8").view("S32").reshape(-1)


def _to_sortable_value(value: Value) -> Any:
    match value:
        case datetime():
            return (value - EPOCH) // MICROSECOND
        case Decimal():
            numerator, denominator = value.as_integer_ratio()
            scaled = numerator * (_DECIMAL_SCALE // denominator)
            return np.array((scaled + _DECIMAL_OFFSET).to_bytes(32, "big"), "S32")
    return value


def mark_changes(values: Int8 | Int32 | Int64) -> Bool:
    """Return True where a value differs from the previous one. The first always does."""
    changed = np.ones(len(values), np.bool_)
    changed[1:] = values[1:] != values[:-1]
    return changed


def slice_columns(columns: Columns, start: int, end: int) -> Columns:
    """Return the columns of some messages. A value that all messages share stays as it is."""
    return {
        key: column.slice(start, end - start) if isinstance(column, pa.Array | pa.ChunkedArray) else column
        for key, column in columns.items()
    }
