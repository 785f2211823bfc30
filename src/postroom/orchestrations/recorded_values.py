"""The values that a journal stores, as JSON: results of steps, and states that are carried over."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from postroom.errors import BadValue
from postroom.message import Bytes, Context, Message, Part

#: The key of a value that JSON does not have. A dict with this key is stored as the value of another one.
_TAG = "$type"
#: How deep lists, tuples and dicts may be nested. Far below the limit of Python, so that a value that was stored can be
#: read wherever a replay is called.
MAX_DEPTH = 100


def to_recorded(value: object, *, depth: int = 0) -> Any:
    """Return a value as JSON values. Raise BadValue if the journal cannot store it. ``depth`` is the number of lists,
    tuples and dicts around it."""
    if depth == MAX_DEPTH and isinstance(value, list | tuple | dict):
        raise BadValue(
            f"The journal cannot store a value whose lists and dicts are nested more than {MAX_DEPTH} deep.",
            hint="Return it as text, such as json.dumps(value), or store it elsewhere and return a reference to it.",
        )
    match value:
        case None | bool() | int() | str():
            return value
        case float() if isfinite(value):
            return value
        case list():
            return [to_recorded(item, depth=depth + 1) for item in value]
        case tuple():
            return {_TAG: "tuple", "value": [to_recorded(item, depth=depth + 1) for item in value]}
        case dict() if all(type(key) is str for key in value):
            items = {key: to_recorded(item, depth=depth + 1) for key, item in value.items()}
            return {_TAG: "dict", "value": items} if _TAG in items else items
        case Decimal():
            return {_TAG: "decimal", "value": str(value)}
        case datetime():
            return {_TAG: "datetime", "value": value.isoformat()}
        case timedelta():
            return {_TAG: "timedelta", "value": [value.days, value.seconds, value.microseconds]}
        case uuid.UUID():
            return {_TAG: "uuid", "value": str(value)}
        case bytes():
            return {_TAG: "bytes", "value": base64.b64encode(value).decode()}
        case Message():
            return {_TAG: "message", "value": message_to_json(value)}
    if isinstance(value, float):
        raise BadValue(
            f"The journal cannot store the float {value}.",
            why="JSON has no NaN and no infinity.",
            hint="Return None or a text instead.",
        )
    raise BadValue(
        # Not the value itself: results of steps can be confidential.
        f"The journal cannot store a value of the type {type(value).__name__}.",
        hint="Return None, bool, int, float, str, bytes, Decimal, datetime, timedelta, UUID, Message, or lists, tuples "
        "and dicts of these. The keys of a dict are strings.",
    )


def encode_value(value: object) -> str:
    """Return a value as JSON text. Raise BadValue if the journal cannot store it."""
    try:
        return json.dumps(to_recorded(value))
    except ValueError as error:  # an integer with thousands of digits
        raise BadValue(f"The journal cannot store a value of the type {type(value).__name__}: {error}.") from None


def decode_value(text: str) -> Any:
    """The inverse of ``encode_value``."""
    return from_recorded(json.loads(text))


def measure_value(value: object) -> int:
    """Return the number of characters that the journal needs for a value. Raise BadValue if it cannot store it."""
    return len(encode_value(value))


def from_recorded(stored: Any) -> Any:
    """The inverse of ``to_recorded``."""
    match stored:
        case list():
            return [from_recorded(item) for item in stored]
        case {"$type": "tuple", "value": list(items)}:
            return tuple([from_recorded(item) for item in items])
        case {"$type": "dict", "value": dict(items)}:
            return {key: from_recorded(item) for key, item in items.items()}
        case {"$type": "decimal", "value": str(text)}:
            return Decimal(text)
        case {"$type": "datetime", "value": str(text)}:
            return datetime.fromisoformat(text)
        case {"$type": "timedelta", "value": [days, seconds, microseconds]}:
            return timedelta(days=days, seconds=seconds, microseconds=microseconds)
        case {"$type": "uuid", "value": str(text)}:
            return uuid.UUID(text)
        case {"$type": "bytes", "value": str(text)}:
            return base64.b64decode(text)
        case {"$type": "message", "value": dict(message)}:
            return message_from_json(message)
        case dict():
            return {key: from_recorded(item) for key, item in stored.items()}
    return stored


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message with its bodies as JSON values."""
    return {
        "message_id": str(message.message_id),
        "context": json.loads(message.context.to_json()),
        "body_part": message.body_part_name,
        "parts": [
            {
                "part_id": str(part.part_id),
                "name": part.name,
                "content_type": part.content_type,
                "charset": part.charset,
                "data": base64.b64encode(part.data).decode(),
            }
            for part in message.parts
        ],
    }


def message_from_json(stored: Mapping[str, Any]) -> Message:
    """The inverse of ``message_to_json``."""
    return Message(
        message_id=uuid.UUID(stored["message_id"]),
        context=Context.from_json(stored["context"]),
        body_part_name=stored["body_part"],
        parts=tuple(
            Part(
                part_id=uuid.UUID(part["part_id"]),
                name=part["name"],
                content_type=part["content_type"],
                charset=part["charset"],
                body=Bytes(base64.b64decode(part["data"])),
            )
            for part in stored["parts"]
        ),
    )
