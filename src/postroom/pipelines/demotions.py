"""Demotion: the values of context properties are copied into a document that is sent (CTX-26).

It is declared like promotion, ``{Region: "region"}``, and with the same paths. A property that a message does not have
is not demoted: the document keeps what it has there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from postroom.errors import PipelineFailure
from postroom.message import Context
from postroom.properties import Property
from postroom.values import Value, value_to_text

_HINT = "Correct the document in a map or its sender, or demote the property into another path; then resume."


def find_demoted(demotions: Mapping[Property, str], context: Context) -> Iterator[tuple[Property, str, Value]]:
    """Yield the properties that a message has, with their paths and values."""
    for prop, path in demotions.items():
        value = context.get(prop)
        if value is not None:
            yield prop, path, value


def format_demoted(value: Value) -> str:
    """Return the text of a value in a document. A datetime is in UTC, with seven digits of a second."""
    match value:
        case datetime():
            moment = value.astimezone(UTC).replace(tzinfo=None)
            return f"{moment.isoformat(timespec='microseconds')}0Z"
        case Decimal():
            return f"{value:f}"
        case _:
            return value_to_text(value)


def demotion_problems(demotions: Mapping[Property, str]) -> list[str]:
    """Describe the problems that do not depend on the format: no path, two properties for one path."""
    found = []
    owners: dict[str, Property] = {}
    for prop, path in demotions.items():
        if not path.strip():
            found.append(f"The path of {prop.dotted_name} is empty.")
        elif (other := owners.setdefault(path, prop)) is not prop:
            found.append(f"{other.dotted_name} and {prop.dotted_name} are demoted into the same path, {path!r}.")
    return found


def demotion_failure(prop: Property, path: str, why: str) -> PipelineFailure:
    """Return the failure of a document, with the property and the path. It does not contain the value."""
    return PipelineFailure(f"{prop.dotted_name} cannot be demoted into {path!r}.", why=why, hint=_HINT)
