"""Converts the values of a corrected row by the Spark types of its columns.

Only texts that Spark reads in the same way are accepted. For others, the row is corrected as the message.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

_INTEGERS = {
    **dict.fromkeys(("tinyint", "byte"), 8),
    **dict.fromkeys(("smallint", "short"), 16),
    **dict.fromkeys(("int", "integer"), 32),
    **dict.fromkeys(("bigint", "long"), 64),
}
_FLOATS = ("float", "real", "double")
_TEXT = re.compile(r"string|(?:var)?char\s*\(\s*\d+\s*\)")
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_INTEGER_TEXT = re.compile(r"[+-]?\d+")
_NUMBER_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
#: The maximum number of characters of a value in an error.
_MAX_CHARACTERS = 100


class BadCell(ValueError):
    """A value does not fit its column. The text completes a sentence about the column."""


class UnknownText(BadCell):
    """Only Spark can convert the texts of a column."""


def parse_cell(column_type: str, text: str, options: Mapping[str, str]) -> Any:
    """Convert the text of a value. Raise BadCell if it does not fit the type."""
    if _TEXT.fullmatch(column_type):
        return text
    if column_type in _INTEGERS:
        return _check_integer(column_type, int(text) if _INTEGER_TEXT.fullmatch(text) else None, text)
    if column_type == "boolean":
        if text.lower() not in ("true", "false"):
            raise _misfit(column_type, text)
        return text.lower() == "true"
    if column_type in _FLOATS:
        return _check_float(column_type, float(text) if _NUMBER_TEXT.fullmatch(text) else None, text)
    if (digits := _DECIMAL.fullmatch(column_type)) and "locale" not in options:
        return _check_decimal(digits, Decimal(text) if _NUMBER_TEXT.fullmatch(text) else None, text)
    if column_type == "date" and "dateformat" not in options:
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise _misfit(column_type, text) from None
    if column_type in ("timestamp", "timestamp_ltz") and "timestampformat" not in options:
        return _parse_timestamp(column_type, text)
    raise UnknownText(f"is {column_type}, whose values can be corrected only in the message")


def check_json_value(column_type: str, value: Any) -> None:
    """Raise BadCell if a value of a JSON document does not fit the type. Numbers are int or Decimal."""
    shown = json.dumps(value, default=str, ensure_ascii=False)
    if column_type in _INTEGERS:
        _check_integer(column_type, value if type(value) is int else None, shown)
    elif column_type in _FLOATS:
        _check_float(column_type, float(value) if type(value) in (int, Decimal) else None, shown)
    elif digits := _DECIMAL.fullmatch(column_type):
        _check_decimal(digits, Decimal(value) if type(value) in (int, Decimal) else None, shown)
    elif column_type == "boolean" and not isinstance(value, bool):
        raise _misfit(column_type, shown)


def describe_misfit(column_type: str, text: str | None) -> str:
    """Return the end of a sentence about a column whose value does not fit. A ``text`` of None is a hidden value."""
    value = "a value (hidden) of another type" if text is None else repr(text[:_MAX_CHARACTERS])
    return f"is {column_type}, but has {value}"


def write_json_value(value: Any) -> str:
    """Return a value as Spark writes it in a JSON document."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case float():
            return _write_float(value)
        case int():
            return str(value)
        case _:
            return json.dumps(write_text(value), ensure_ascii=False)


def write_text(value: Any) -> str:
    """Return a value that is not null as Spark writes it in a CSV line."""
    match value:
        case bool() | Decimal() | float() | int():
            return write_json_value(value)
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
        case date():
            return value.isoformat()
        case _:
            return str(value)


def _check_integer(column_type: str, value: int | None, text: str) -> int:
    limit = 1 << (_INTEGERS[column_type] - 1)
    if value is None or not -limit <= value < limit:
        raise _misfit(column_type, text)
    return value


def _check_float(column_type: str, value: float | None, text: str) -> float:
    if value is None or not math.isfinite(value):
        raise _misfit(column_type, text)
    return value


def _check_decimal(digits: re.Match[str], value: Decimal | None, text: str) -> Decimal:
    precision, scale = int(digits[1] or 10), int(digits[2] or 0)
    if value is None or (value and value.adjusted() >= precision - scale):
        raise _misfit(digits[0], text)
    rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    if rounded and rounded.adjusted() >= precision - scale:
        raise _misfit(digits[0], text)
    return rounded


def _parse_timestamp(column_type: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        # The readers of Postroom use UTC for a time without a zone.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _misfit(column_type, text) from None


def _write_float(value: float) -> str:
    """Return the text that Java writes for a double."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{int(exponent)}"


def _misfit(column_type: str, text: str) -> BadCell:
    return BadCell(describe_misfit(column_type, text))
