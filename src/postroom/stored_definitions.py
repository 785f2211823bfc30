"""Read a definition from its stored JSON. Errors name the wrong fields and never repeat their values, which may be
passwords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from postroom.errors import DefinitionError

_T = TypeVar("_T")


def read_stored(what: str, expected: TypeAdapter[_T], stored: Mapping[str, Any]) -> _T:
    """Return the definition that ``model_dump(mode="json")`` turned into ``stored``. ``what`` names it in an error."""
    try:
        return expected.validate_python(dict(stored))
    except ValidationError as error:
        why = wrong_fields(error)
    except (TypeError, AttributeError) as error:  # an argument is missing, not known or of another type
        why = str(error)
    raise DefinitionError(
        f"This is not a stored {what}.",
        why=why,
        hint="It may have been written by another version; apply the application again.",
    )


def wrong_fields(error: ValidationError) -> str:
    """Return each wrong field with what is wrong with it, without its value."""
    return "; ".join(f"{'.'.join(map(str, problem['loc'])) or 'it'}: {problem['msg']}" for problem in error.errors())
