"""Converts values to the columns of the predicate and message-property tables: one of four columns, by type."""

from __future__ import annotations

import struct
from datetime import datetime
from decimal import Decimal

from postroom.values import EPOCH, MICROSECOND, Value, ValueType

#: value_text, value_int, value_decimal, value_float: one is set, the others are null.
StoredValue = tuple[str | None, int | None, Decimal | None, float | None]

_DOUBLE = struct.Struct(">d")
NULL_VALUE: StoredValue = (None, None, None, None)


def to_stored(value: Value | None) -> StoredValue:
    """Return the four columns for a value. All are null for None (an exists predicate)."""
    match value:
        case None:
            return NULL_VALUE
        case bool() | int():
            return None, int(value), None, None
        case str():
            return value, None, None, None
        case Decimal():
            return None, None, value, None
        case float():
            return None, None, None, value
        case datetime():
            return None, (value - EPOCH) // MICROSECOND, None, None


def value_key(value: Value) -> str:
    """Return the text that equal values of a type share, as PostgreSQL generates it in the columns ``value_key``.

    For a float it is the eight bytes, because Python and PostgreSQL may choose different shortest digits.
    """
    match value:
        case str():
            return value
        case bool() | int():
            return str(int(value))
        case datetime():
            return str((value - EPOCH) // MICROSECOND)
        case Decimal():
            return format_decimal(value)
        case float():
            return _DOUBLE.pack(value + 0.0).hex()


def from_value_key(value_type: ValueType, key: str) -> Value:
    """Return the value of the given type for a value key."""
    match value_type:
        case ValueType.STR:
            return key
        case ValueType.INT:
            return int(key)
        case ValueType.BOOL:
            return key != "0"
        case ValueType.DATETIME:
            return EPOCH + int(key) * MICROSECOND
        case ValueType.DECIMAL:
            return Decimal(key)
        case ValueType.FLOAT:
            return float(_DOUBLE.unpack(bytes.fromhex(key))[0])


def format_decimal(value: Decimal) -> str:
    """Format a Decimal without trailing zeros and without an exponent."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def from_stored(value_type: ValueType, stored: StoredValue) -> Value | None:
    """Return the value of the given type from the four columns, or None."""
    text, number, exact, real = stored
    match value_type:
        case ValueType.STR:
            return text
        case ValueType.INT:
            return number
        case ValueType.BOOL:
            return None if number is None else bool(number)
        case ValueType.DATETIME:
            return None if number is None else EPOCH + number * MICROSECOND
        case ValueType.DECIMAL:
            return exact
        case ValueType.FLOAT:
            return real
