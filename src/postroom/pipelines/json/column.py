"""Columns from values that msgspec has decoded, checked as a whole: the fast way of ``promote_json``.

A column maker gives exactly the values that ``promote_json`` gives for each document, or raises. It also takes values
that come from there.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from postroom.errors import BadValue
from postroom.filters.columns import arrow_type
from postroom.values import (
    DECIMAL_DIGITS,
    MAX_PROMOTED_LENGTH,
    ValueType,
    check_promoted,
    check_value,
    value_from_text,
)

_NUMBERS = {Decimal, int, type(None)}

ColumnMaker = Callable[[list[Any]], pa.Array]

#: What msgspec decodes a promoted path into.
DECODED_TYPES: dict[ValueType, Any] = {
    ValueType.STR: str | None,
    ValueType.INT: int | None,
    # Any leaves a string a string and gives a number's text to float_hook; msgspec's own Decimal would take "1_0".
    ValueType.DECIMAL: Any,
    ValueType.FLOAT: float | None,
    ValueType.BOOL: bool | None,
    ValueType.DATETIME: str | None,
}


def column_maker(value_type: ValueType) -> ColumnMaker:
    """What makes a column of this type from decoded values."""
    match value_type:
        case ValueType.STR:
            return _strings
        case ValueType.FLOAT:
            return _floats
        case ValueType.DECIMAL:
            return _decimals
        case ValueType.DATETIME:
            return _datetimes
        case ValueType.INT | ValueType.BOOL:
            # msgspec has told them from each other, and Arrow refuses an int beyond 64 bits.
            return lambda values: pa.array(values, type=arrow_type(value_type))


def in_domain(value_type: ValueType, value: Any) -> bool:
    """Whether a decoded value can stand in a column of this type; the same question, of a single value."""
    if value is None:
        return True
    try:
        if type(value) is str and value_type is not ValueType.STR:
            value = value_from_text(value_type, value)
        check_promoted(check_value(value_type, value))
    except BadValue:
        return False
    return True


def _strings(values: list[Any]) -> pa.Array:
    column = pa.array(values, type=arrow_type(ValueType.STR))
    if (pc.max(pc.utf8_length(column)).as_py() or 0) > MAX_PROMOTED_LENGTH:
        raise BadValue("One of them is too long.")
    text = column.buffers()[2]
    if text is not None and b"\0" in text.to_pybytes():
        raise BadValue("One of them contains a NUL.")
    return column


def _floats(values: list[Any]) -> pa.Array:
    # -0.0 is 0.0 in the domain, and adding zero makes it so.
    return pc.add(pa.array(values, type=arrow_type(ValueType.FLOAT)), 0.0)


def _decimals(values: list[Any]) -> pa.Array:
    kinds = set(map(type, values))
    if str in kinds:
        values = [value_from_text(ValueType.DECIMAL, value) if type(value) is str else value for value in values]
        kinds.discard(str)
    # Arrow refuses more than 38 digits on either side of the point. That there are at most 38 in all is sure if no more
    # characters are needed to write them; an exponent needs a closer look too, because Arrow does not take all zeros.
    written = list(map(str, values))
    if not kinds <= _NUMBERS or max(map(len, written), default=0) > DECIMAL_DIGITS or any("E" in w for w in written):
        values = [None if value is None else check_value(ValueType.DECIMAL, value) for value in values]
    return pa.array(values, type=arrow_type(ValueType.DECIMAL))


def _datetimes(values: list[Any]) -> pa.Array:
    read = [value_from_text(ValueType.DATETIME, value) if type(value) is str else value for value in values]
    return pa.array(read, type=arrow_type(ValueType.DATETIME))
