"""Builds columns from values that msgspec has decoded, checking a whole column at once: the fast form of
``promote_json``.

A column maker returns exactly the values that ``promote_json`` returns for each document, or raises. It also accepts
values from ``promote_json``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from postroom.errors import BadValue
from postroom.filters.columns import to_arrow_type
from postroom.values import DECIMAL_DIGITS, MAX_PROMOTED_LENGTH, ValueType, check_promoted, check_value, value_from_text

_NUMBERS = {Decimal, int, type(None)}

ColumnMaker = Callable[[list[Any]], pa.Array]

#: The types into which msgspec decodes a promoted path.
DECODED_TYPES: dict[ValueType, Any] = {
    ValueType.STR: str | None,
    ValueType.INT: int | None,
    # Any keeps a string and passes the text of a number to float_hook. msgspec's own Decimal would accept "1_0".
    ValueType.DECIMAL: Any,
    ValueType.FLOAT: float | None,
    ValueType.BOOL: bool | None,
    ValueType.DATETIME: str | None,
}


def get_column_maker(value_type: ValueType) -> ColumnMaker:
    """Return the function that builds a column of this type from decoded values."""
    match value_type:
        case ValueType.STR:
            return _make_strings
        case ValueType.FLOAT:
            return _make_floats
        case ValueType.DECIMAL:
            return _make_decimals
        case ValueType.DATETIME:
            return _make_datetimes
        case ValueType.INT | ValueType.BOOL:
            # msgspec has checked the type, and Arrow rejects an int beyond 64 bits.
            return lambda values: pa.array(values, type=to_arrow_type(value_type))


def is_in_domain(value_type: ValueType, value: Any) -> bool:
    """Return True if a column of this type accepts a decoded value."""
    if value is None:
        return True
    try:
        if type(value) is str and value_type is not ValueType.STR:
            value = value_from_text(value_type, value)
        check_promoted(check_value(value_type, value))
    except BadValue:
        return False
    return True


def _make_strings(values: list[Any]) -> pa.Array:
    column = pa.array(values, type=to_arrow_type(ValueType.STR))
    if (pc.max(pc.utf8_length(column)).as_py() or 0) > MAX_PROMOTED_LENGTH:
        raise BadValue("A value is too long.")
    text = column.buffers()[2]
    if text is not None and b"\0" in text.to_pybytes():
        raise BadValue("A value contains a NUL.")
    return column


def _make_floats(values: list[Any]) -> pa.Array:
    # Adding zero makes 0.0 of -0.0, as ``check_value`` does.
    return pc.add(pa.array(values, type=to_arrow_type(ValueType.FLOAT)), 0.0)


def _make_decimals(values: list[Any]) -> pa.Array:
    kinds = set(map(type, values))
    if str in kinds:
        values = [value_from_text(ValueType.DECIMAL, value) if type(value) is str else value for value in values]
        kinds.discard(str)
    # Arrow rejects more than 38 digits on either side of the point. A text of at most 38 characters has at most 38
    # digits in all. Numbers with an exponent are checked one by one, because Arrow does not accept all zeros.
    written = list(map(str, values))
    if not kinds <= _NUMBERS or max(map(len, written), default=0) > DECIMAL_DIGITS or any("E" in w for w in written):
        values = [None if value is None else check_value(ValueType.DECIMAL, value) for value in values]
    return pa.array(values, type=to_arrow_type(ValueType.DECIMAL))


def _make_datetimes(values: list[Any]) -> pa.Array:
    read = [value_from_text(ValueType.DATETIME, value) if type(value) is str else value for value in values]
    return pa.array(read, type=to_arrow_type(ValueType.DATETIME))
