"""Converts the built-in types of XSD to the six types of a property (CTX-16), and parses their texts."""

from __future__ import annotations

import re
from datetime import date, datetime

from postroom.errors import BadValue
from postroom.values import Value, ValueType, check_value, value_from_text

XSD = "http://www.w3.org/2001/XMLSchema"

_STR = [
    "anyURI",
    "ENTITY",
    "ID",
    "IDREF",
    "language",
    "Name",
    "NCName",
    "NMTOKEN",
    "normalizedString",
    "NOTATION",
    "QName",
    "string",
    "token",
    "anySimpleType",
]
_INT = ["byte", "unsignedByte", "short", "unsignedShort", "int", "unsignedInt"]
_DECIMAL = ["decimal", "integer", "negativeInteger", "nonNegativeInteger", "nonPositiveInteger", "positiveInteger"]
_DATETIME = ["date", "dateTime", "gYear", "gYearMonth", "gMonth", "gMonthDay", "gDay"]

_VALUE_TYPES = {
    **dict.fromkeys(_STR, ValueType.STR),
    **dict.fromkeys(_INT, ValueType.INT),
    **dict.fromkeys(_DECIMAL, ValueType.DECIMAL),
    **dict.fromkeys(("float", "double"), ValueType.FLOAT),
    "boolean": ValueType.BOOL,
    **dict.fromkeys(_DATETIME, ValueType.DATETIME),
}

#: Patterns of dates. The defaults replace a missing year, month or day. 1904 is a leap year, as in .NET.
_ZONE = r"(?P<zone>Z|[+-]\d\d:\d\d)?"
_DATE_PATTERNS = {
    "date": re.compile(rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d){_ZONE}"),
    "gYear": re.compile(rf"(?P<year>\d{{4}}){_ZONE}"),
    "gYearMonth": re.compile(rf"(?P<year>\d{{4}})-(?P<month>\d\d){_ZONE}"),
    "gMonth": re.compile(rf"--(?P<month>\d\d)(?:--)?{_ZONE}"),
    "gMonthDay": re.compile(rf"--(?P<month>\d\d)-(?P<day>\d\d){_ZONE}"),
    "gDay": re.compile(rf"---(?P<day>\d\d){_ZONE}"),
}
_DATE_FORMATS = {
    "date": "{0.year:04}-{0.month:02}-{0.day:02}",
    "gYear": "{0.year:04}",
    "gYearMonth": "{0.year:04}-{0.month:02}",
    "gMonth": "--{0.month:02}",
    "gMonthDay": "--{0.month:02}-{0.day:02}",
    "gDay": "---{0.day:02}",
}
_DEFAULTS = {"year": "1904", "month": "01", "day": "01"}


def to_value_type(xsd_type: str) -> ValueType | None:
    """Return the type of a property for a built-in type, or None if it cannot be promoted."""
    return _VALUE_TYPES.get(xsd_type)


def describe_unsupported_type(xsd_type: str) -> str:
    """Describe why ``to_value_type`` returns None."""
    if xsd_type == "time":
        return "a time without a date is not an instant"
    return f"values of the type {xsd_type} cannot be promoted"


def parse_value(form: str, value_type: ValueType, text: str) -> Value:
    """Parse the text of a field of the built-in type ``form``. Raises BadValue."""
    pattern = _DATE_PATTERNS.get(form)
    if pattern is None:
        return value_from_text(value_type, text)
    match = pattern.fullmatch(text.strip())
    if match is None:
        raise BadValue(f"{text!r} is not of the type {form}.")
    found = match.groupdict()
    year, month, day = (int(found.get(name) or _DEFAULTS[name]) for name in ("year", "month", "day"))
    try:
        start = datetime.fromisoformat(f"{date(year, month, day).isoformat()}T00:00:00{found['zone'] or ''}")
        # A date without a zone is in the server's local time (CTX-15).
        return check_value(ValueType.DATETIME, start.astimezone() if start.tzinfo is None else start)
    except (ValueError, OverflowError, OSError):
        raise BadValue(f"{text!r} is not of the type {form}.") from None


def format_date(form: str, value: Value) -> str | None:
    """Return the text of a date for a field of the built-in type ``form``, in the server's local time (CTX-15). Return
    None for other types, and for a dateTime."""
    pattern = _DATE_FORMATS.get(form)
    return pattern.format(value.astimezone()) if pattern is not None and isinstance(value, datetime) else None
