"""From what stands in a document to a promoted value: one property at a time, from JSON or from text."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from postroom.errors import BadValue, PipelineFailure
from postroom.properties import Property
from postroom.values import Value, ValueType, check_promoted, check_value, value_from_text

#: How much is shown of a reason that quotes a long value: its beginning and its end.
_SHOWN = 150

_NUMBERS = (ValueType.INT, ValueType.DECIMAL, ValueType.FLOAT)
_STRINGS = (ValueType.STR, ValueType.DECIMAL, ValueType.DATETIME)

_WANTED = {
    ValueType.STR: "a JSON string",
    ValueType.INT: "a JSON number",
    ValueType.DECIMAL: "a JSON number or string",
    ValueType.FLOAT: "a JSON number",
    ValueType.BOOL: "true or false",
    ValueType.DATETIME: "a JSON string with a date and time, such as 2026-01-31T12:00:00Z",
}


def promote_text(prop: Property, text: str | None, *, path: str) -> Value | None:
    """The value of ``text``, or None: not promoted. Blank text is a value of a str property only (CTX-13, CTX-14)."""
    if text is None or (prop.value_type is not ValueType.STR and not text.strip()):
        return None
    try:
        return check_promoted(value_from_text(prop.value_type, text))
    except BadValue as error:
        raise _bad_value(prop, path, error) from None


def promote_json(prop: Property, token: bytes, *, path: str) -> Value | None:
    """The value of a JSON value, given as its text, or None for null: not promoted."""
    try:
        return _from_json(prop.value_type, token)
    except BadValue as error:
        raise _bad_value(prop, path, error) from None


def cannot_promote(prop: Property, path: str, why: str, hint: str = "") -> PipelineFailure:
    """The failure of a document, which names the property and the place."""
    if len(why) > 2 * _SHOWN:
        why = f"{why[:_SHOWN]} … {why[-_SHOWN:]}"
    return PipelineFailure(
        f"{prop.dotted} cannot be promoted from {path!r}.",
        why=why,
        hint=hint or "Correct the document and send it again, or promote the property from another place.",
    )


def _bad_value(prop: Property, path: str, error: BadValue) -> PipelineFailure:
    if not prop.sensitive:
        return cannot_promote(prop, path, error.what, error.hint)
    # Operators read this, and nobody is shown a sensitive value (SEC-14).
    wanted = prop.value_type.python_type.__name__
    return cannot_promote(prop, path, f"What is there (hidden) is no {wanted} that can be promoted.")


def _from_json(value_type: ValueType, token: bytes) -> Value | None:
    first = token[:1]
    if first == b"n":
        return None
    if first == b'"' and value_type in _STRINGS:
        text = msgspec.json.decode(token, type=str)
        return check_promoted(value_from_text(value_type, text))
    if first in b"-0123456789" and value_type in _NUMBERS:
        return _from_number(value_type, token.decode("ascii"))
    if first in b"tf" and value_type is ValueType.BOOL:
        return first == b"t"
    shown = token.decode("utf-8", "replace")
    raise BadValue(f"{shown} is not {_WANTED[value_type]}.")


def _from_number(value_type: ValueType, text: str) -> Value:
    if value_type is ValueType.INT and not text.removeprefix("-").isdigit():
        return _whole_number(text)
    return value_from_text(value_type, text)


def _whole_number(text: str) -> Value:
    """JSON does not tell 3 from 3.0 or 3e0, and some writers of whole numbers choose the latter."""
    number = value_from_text(ValueType.DECIMAL, text)
    assert isinstance(number, Decimal)
    if number != number.to_integral_value():
        raise BadValue(f"{text} is not a whole number.")
    return check_value(ValueType.INT, int(number))
