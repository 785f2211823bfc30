"""The promoted values of a batch as columns: an Arrow array per property, or one value for all messages.

    {"Orders#Region": pa.array(["EU", None, "US"]), BTS.ReceivePortName.key: "OrdersIn"}

A null means that the message does not have the property promoted. A column whose Arrow type is not one of its
property's matches no filter, and neither does a single value of another type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.types as kinds

from postroom.errors import BadValue
from postroom.values import Value, ValueType, type_of

#: The promoted values of a batch by property key.
Columns = Mapping[str, pa.Array | Value]

_ARROW_TYPES = {
    ValueType.STR: pa.string(),
    ValueType.INT: pa.int64(),
    # 38 digits on either side of the point, so that every Decimal of the domain has one exact form.
    ValueType.DECIMAL: pa.decimal256(76, 38),
    ValueType.FLOAT: pa.float64(),
    ValueType.BOOL: pa.bool_(),
    ValueType.DATETIME: pa.timestamp("us", "UTC"),
}


def arrow_type(value_type: ValueType) -> pa.DataType:
    """Return the Arrow type of a column of such values: ``arrow_type(ValueType.INT)`` is int64."""
    return _ARROW_TYPES[value_type]


def value_type_of_column(data_type: pa.DataType) -> ValueType | None:
    """Return the value type of a column of this Arrow type, in any width and encoding. None if it has no value type.

    A timestamp without a time zone is not an instant, and an unsigned 64-bit integer is outside the domain of int."""
    if kinds.is_dictionary(data_type):
        return value_type_of_column(data_type.value_type)
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


def plain(column: pa.Array, value_type: ValueType) -> pa.Array:
    """Convert a column of this value type, in any width, to the value type's own Arrow type."""
    wanted = arrow_type(value_type)
    return column if column.type == wanted else column.cast(wanted, safe=False)


def columns_of(batch: Sequence[Mapping[str, Value]]) -> dict[str, pa.Array]:
    """Build columns from the promoted values of messages, one mapping per message.

    Raise BadValue if two messages have different types for one property."""
    found: dict[str, ValueType] = {}
    for promoted in batch:
        for key, value in promoted.items():
            if found.setdefault(key, type_of(value)) is not type_of(value):
                raise BadValue(f"{key} is a {found[key].python_type.__name__} in one message and {value!r} in another.")
    return {
        key: pa.array([promoted.get(key) for promoted in batch], arrow_type(value_type))
        for key, value_type in found.items()
    }
