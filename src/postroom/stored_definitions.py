"""Read a definition from its stored JSON. Errors name the wrong fields and never repeat their values, which may be
passwords."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError, ValidationInfo

from postroom.errors import DefinitionError

_T = TypeVar("_T")

_MAX_DEPTH = 100

#: The context of a validation that reads stored JSON, and not what a user has written.
_STORED = {"is_stored": True}


def read_stored(what: str, expected: TypeAdapter[_T], stored: Mapping[str, Any]) -> _T:
    """Return the definition that ``model_dump(mode="json")`` turned into ``stored``. ``what`` names it in an error."""
    try:
        _check_depth(stored)
        return expected.validate_python(dict(stored), context=_STORED)
    except ValidationError as error:
        why = wrong_fields(error)
    except RecursionError as error:
        why = str(error)
    except (TypeError, AttributeError) as error:  # an argument is missing, not known or of another type
        why = str(error)
    raise DefinitionError(
        f"This is not a stored {what}.",
        why=why,
        hint="It may have been written by another version; apply the application again.",
    )


def _check_depth(stored: object) -> None:
    """Raise RecursionError if JSON is nested more deeply than pydantic can store it again."""
    level: list[object] = [stored]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for value in level
            if isinstance(value, Mapping | list)
            for item in (value.values() if isinstance(value, Mapping) else value)
        ]
        if not level:
            return
    raise RecursionError(f"it is nested more than {_MAX_DEPTH} levels deep")


def check_stored_objects(items: Sequence[object], info: ValidationInfo) -> None:
    """Raise ValueError if one of these stored items is no object. What a user has written is checked later."""
    if info.context is not None and any(isinstance(item, str | int | float | list | None) for item in items):
        raise ValueError("each item is an object")


def wrong_fields(error: ValidationError) -> str:
    """Return each wrong field with what is wrong with it, without its value."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'it'}: {to_reason(problem['msg'])}" for problem in error.errors()
    )


def to_reason(message: str) -> str:
    """Return the message of a validation error without the words that pydantic puts before the text of a ValueError."""
    return message.removeprefix("Value error, ")
