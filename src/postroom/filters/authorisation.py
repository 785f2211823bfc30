"""Authorise hosts to receive a message: compare its message predicates with the host's properties (SEC-01 … 06).

    required = frozenset({("Security#Thumbprint", "A909")})
    may_receive(required, {("Security#Thumbprint", "A909")})        # True: the host has the required property
    may_receive(required, NO_APPLICATION_PROPERTIES)                          # False

The only comparison is equality, and every predicate must hold. Every host may receive a message without predicates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from postroom.values import Value, value_from_json, value_to_json

#: The key of a property, and the value that a host must have for it.
MessagePredicate = tuple[str, Value]

#: The application properties of one host: property keys, and values in their comparable text.
ApplicationProperties = frozenset[tuple[str, str]]

NO_APPLICATION_PROPERTIES: ApplicationProperties = frozenset()


def may_receive(predicates: Iterable[MessagePredicate], properties: Collection[tuple[str, str]]) -> bool:
    """Return True if the host has every property that the predicates require."""
    return all((key, comparable_text(value)) in properties for key, value in predicates)


def find_unmet(
    predicates: Iterable[MessagePredicate], properties: Collection[tuple[str, str]]
) -> list[MessagePredicate]:
    """Return the predicates that the host does not fulfil, sorted by key."""
    missing = [(key, value) for key, value in predicates if (key, comparable_text(value)) not in properties]
    return sorted(missing, key=lambda item: (item[0], comparable_text(item[1])))


def comparable_text(value: Value) -> str:
    """Return the text that all equal values of a type share. The MessageBox stores and compares this text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return str(int(value))
    if isinstance(value, Decimal):
        text = format(value, "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return repr(value + 0.0)


def predicates_to_json(predicates: Iterable[MessagePredicate]) -> list[list[object]]:
    """Return the stored form of message predicates, sorted."""
    return sorted(([key, value_to_json(value)] for key, value in predicates), key=str)


def predicates_from_json(stored: Iterable[Any]) -> frozenset[MessagePredicate]:
    """The inverse of ``predicates_to_json``."""
    return frozenset((key, value_from_json(value)) for key, value in stored)
