"""The values of contexts and predicates: six types, each with an exact domain.

| type     | domain                                                              |
|----------|---------------------------------------------------------------------|
| str      | no NUL, no lone surrogate; at most 256 characters when promoted     |
| int      | signed 64 bit                                                       |
| Decimal  | exact and finite, at most 38 digits before and 38 after the point, 38 in all |
| float    | finite                                                              |
| bool     | true or false; never an int                                         |
| datetime | aware; stored in UTC, in microseconds                               |

Every matcher (the evaluator, the index, the SQL function) relies on these domains. A value is checked here once, when
it is put into a context or a predicate."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from enum import IntEnum
from typing import Any

from postroom.errors import BadValue

Value = str | int | Decimal | float | bool | datetime

MAX_PROMOTED_LENGTH = 256
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
#: A datetime is stored and compared as a number of microseconds since this moment.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
DECIMAL_DIGITS = 38


class ValueType(IntEnum):
    """The type of a property. The numbers are stored in the MessageBox and never change."""

    STR = 1
    INT = 2
    DECIMAL = 3
    FLOAT = 4
    BOOL = 5
    DATETIME = 6

    @classmethod
    def of(cls, python_type: type) -> ValueType:
        """Return the value type of a Python type: ``ValueType.of(Decimal)``."""
        try:
            return _BY_PYTHON_TYPE[python_type]
        except KeyError:
            known = ", ".join(t.__name__ for t in _BY_PYTHON_TYPE)
            raise BadValue(
                f"{python_type.__name__} is not a type that a property can have.", hint=f"Use one of: {known}."
            ) from None

    @property
    def python_type(self) -> type:
        return _PYTHON_TYPES[self]

    @property
    def noun(self) -> str:
        """The name of the Python type with its article: ``an int``."""
        name = self.python_type.__name__
        return f"{'an' if name == 'int' else 'a'} {name}"


_PYTHON_TYPES: dict[ValueType, type] = {
    ValueType.STR: str,
    ValueType.INT: int,
    ValueType.DECIMAL: Decimal,
    ValueType.FLOAT: float,
    ValueType.BOOL: bool,
    ValueType.DATETIME: datetime,
}
_BY_PYTHON_TYPE = {python_type: value_type for value_type, python_type in _PYTHON_TYPES.items()}


def type_of(value: object) -> ValueType:
    """Return the value type of a Python value. A bool is not an int."""
    try:
        return _BY_PYTHON_TYPE[type(value)]
    except KeyError:
        return ValueType.of(type(value))


def check_value(value_type: ValueType, value: object) -> Value:
    """Return ``value`` in canonical form. Raise BadValue if it is outside the domain.

    Types are not converted, with one exact exception: an int is accepted for a Decimal."""
    return _CHECKS[value_type](value)


def check_promoted(value: Value) -> Value:
    """Return the value. Raise BadValue for a string that is too long to be promoted; a written one has no limit."""
    if type(value) is str and len(value) > MAX_PROMOTED_LENGTH:
        raise BadValue(
            f"A promoted value may have at most {MAX_PROMOTED_LENGTH} characters, this one has {len(value)}.",
            hint="Write the property instead of promoting it, or promote a shorter field.",
        )
    return value


def _wrong_type(value: object, wanted: str) -> BadValue:
    return BadValue(f"{value!r} is not {wanted}.")


def _check_str(value: object) -> Value:
    if type(value) is not str:
        raise _wrong_type(value, "a str")
    if "\0" in value:
        raise BadValue(f"{value!r} contains a NUL character, which a str value may not.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadValue(f"{value!r} contains a lone surrogate, which a str value may not.") from None
    return value


def _check_int(value: object) -> Value:
    if type(value) is not int:
        raise _wrong_type(value, "an int")
    if not INT_MIN <= value <= INT_MAX:
        raise BadValue(f"{value} does not fit into a signed 64-bit integer.")
    return value


def _check_decimal(value: object) -> Value:
    if type(value) is int:
        value = Decimal(value)
    if type(value) is not Decimal:
        raise _wrong_type(value, "a Decimal")
    if not value.is_finite():
        raise BadValue(f"{value} is not a finite Decimal.")
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) <= DECIMAL_DIGITS and -DECIMAL_DIGITS <= exponent <= 0:
        return value  # the common case
    zeros = next(i for i, digit in enumerate(reversed(digits)) if digit)
    count, trimmed = len(digits) - zeros, exponent + zeros
    if count > DECIMAL_DIGITS or trimmed < -DECIMAL_DIGITS or count + trimmed > DECIMAL_DIGITS:
        raise BadValue(f"{value} has more than {DECIMAL_DIGITS} digits.")
    # Trailing zeros beyond the scale of a stored number must be removed.
    return value if exponent >= -DECIMAL_DIGITS else Decimal((sign, digits[:count], trimmed))


def _check_float(value: object) -> Value:
    if type(value) is not float:
        raise _wrong_type(value, "a float")
    if not math.isfinite(value):
        raise BadValue(f"{value} is not a finite float.")
    return value + 0.0


def _check_bool(value: object) -> Value:
    if type(value) is not bool:
        raise _wrong_type(value, "a bool")
    return value


def _check_datetime(value: object) -> Value:
    if type(value) is not datetime:
        raise _wrong_type(value, "a datetime")
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadValue(f"{value.isoformat()} has no time zone.", hint="Use an aware datetime, such as one in UTC.")
    try:
        return value.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise BadValue(f"{value.isoformat()} is outside the years 1 to 9999 in UTC.") from None


_CHECKS: dict[ValueType, Callable[[object], Value]] = {
    ValueType.STR: _check_str,
    ValueType.INT: _check_int,
    ValueType.DECIMAL: _check_decimal,
    ValueType.FLOAT: _check_float,
    ValueType.BOOL: _check_bool,
    ValueType.DATETIME: _check_datetime,
}


def value_from_text(value_type: ValueType, text: str, *, round_to_int: bool = False) -> Value:
    """Parse a value: a CSV field, an XML element, a value in a text filter.

    ``round_to_int`` is for filter values only: decimal text for an int property is rounded half away from zero (9.5
    becomes 10)."""
    try:
        match value_type:
            case ValueType.STR:
                return check_value(value_type, text)
            case ValueType.INT:
                return check_value(value_type, _int_from_text(text.strip(), round_to_int))
            case ValueType.DECIMAL:
                return check_value(value_type, _decimal_from_text(text.strip()))
            case ValueType.FLOAT:
                return check_value(value_type, _float_from_text(text.strip()))
            case ValueType.BOOL:
                return {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]
            case ValueType.DATETIME:
                return check_value(value_type, _datetime_from_text(text.strip()))
    except (ValueError, KeyError, InvalidOperation, OverflowError):
        raise BadValue(f"{text!r} is not {_DESCRIPTIONS[value_type]}.") from None


_DESCRIPTIONS = {
    ValueType.STR: "text",
    ValueType.INT: "a whole number",
    ValueType.DECIMAL: "a decimal number",
    ValueType.FLOAT: "a number",
    ValueType.BOOL: "true or false",
    ValueType.DATETIME: "a date and time (such as 2026-01-31T12:00:00Z)",
}


def _int_from_text(text: str, round_to_int: bool) -> int:
    if round_to_int:
        return int(_decimal_from_text(text).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    if "_" in text:
        raise ValueError(text)
    return int(text)


def _decimal_from_text(text: str) -> Decimal:
    if "_" in text:
        raise ValueError(text)
    return Decimal(text)


def _float_from_text(text: str) -> float:
    if "_" in text:
        raise ValueError(text)
    return float(text)


def _datetime_from_text(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    # A time without a zone is the server's local time (CTX-15).
    return value.astimezone() if value.tzinfo is None else value


def value_to_json(value: Value) -> Any:
    """Convert a value to JSON that preserves its type: str, int and bool as they are, others as an object of one
    key."""
    kind = type(value)
    if kind is Decimal:
        return {"decimal": str(value)}
    if kind is float:
        return {"float": value}
    if kind is datetime:
        assert isinstance(value, datetime)
        return {"datetime": value.isoformat()}
    return value


def value_from_json(encoded: Any) -> Value:
    """The inverse of ``value_to_json``."""
    if isinstance(encoded, Mapping):
        ((kind, raw),) = encoded.items()
        match kind:
            case "decimal":
                return Decimal(raw)
            case "float":
                return float(raw)
            case "datetime":
                return datetime.fromisoformat(raw)
        raise BadValue(f"{json.dumps(encoded)} is not a value of a context.")
    assert isinstance(encoded, str | int)
    return encoded


def value_to_text(value: Value) -> str:
    """Format a value as in a text filter, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)
