"""Parse values that users type for properties, and list the properties of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from postroom.errors import BadValue
from postroom.filters.authorisation import MessagePredicate
from postroom.message import Context
from postroom.messagebox.configuration.properties import find_property
from postroom.messagebox.configuration.properties import read_deployed_properties as read_deployed_properties
from postroom.operations.records import extend
from postroom.properties import Property, dotted_name, split_key
from postroom.values import Value, value_from_text

T = TypeVar("T")

#: The maximum length of a text in a listing.
MAX_CHARACTERS = 1_000


@dataclass(frozen=True, kw_only=True)
class RequiredProperty:
    """A message predicate: a host receives the message only if it has the property with this value."""

    property: str
    value: Value


@dataclass(frozen=True, kw_only=True)
class PropertyListing:
    """A property of a message."""

    property: str
    value: Value
    promoted: bool


@dataclass(frozen=True, kw_only=True)
class TruncatedProperty(PropertyListing):
    """A property with a text that is cut off, and the length of the whole text."""

    length: int


def list_context(context: Context) -> list[PropertyListing]:
    """Return the properties of a context, promoted properties first. A long text is cut off."""
    listed = []
    for prop in context:
        value = context[prop]
        row = PropertyListing(property=prop.dotted_name, value=truncate(value), promoted=context.is_promoted(prop))
        if isinstance(value, str) and len(value) > MAX_CHARACTERS:
            row = extend(row, TruncatedProperty, length=len(value))
        listed.append(row)
    return listed


def list_required(predicates: Iterable[MessagePredicate]) -> list[RequiredProperty]:
    """Return the message predicates, sorted by property."""
    rows = [RequiredProperty(property=dotted_name(*split_key(key)), value=value) for key, value in predicates]
    return sorted(rows, key=lambda row: (row.property, str(row.value)))


def truncate(value: T) -> T | str:
    """Return a value, or the start of a long text."""
    is_long = isinstance(value, str) and len(value) > MAX_CHARACTERS
    return f"{str(value)[:MAX_CHARACTERS]}…" if is_long else value


def parse_context(
    promoted: Sequence[str], written: Sequence[str], properties: Sequence[Property], required: Sequence[str] = ()
) -> Context:
    """Build a context from command-line values such as ``Orders.Region=EU``.

    ``required`` are the predicates that the receiving host must meet."""
    context = Context()
    for text in written:
        prop, value = _parse_assignment(text, properties)
        _reject_duplicate(prop, context)
        context = context.write(prop, value)
    for text in promoted:
        prop, value = _parse_assignment(text, properties)
        _reject_duplicate(prop, context)
        context = context.promote(prop, value)
    for text in required:
        prop, value = _parse_assignment(text, properties)
        context = context.require(prop, value)
    return context


def _reject_duplicate(prop: Property, context: Context) -> None:
    if prop in context:
        raise BadValue(f"{prop.dotted_name} is given twice.", hint="A property has one value in a message.")


def _parse_assignment(text: str, properties: Sequence[Property]) -> tuple[Property, Value]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadValue(f"{text!r} has no value.", hint="Write PROPERTY=VALUE, such as Orders.Region=EU.")
    prop = find_property(name.strip(), properties)
    try:
        return prop, value_from_text(prop.value_type, value)
    except BadValue as error:
        raise BadValue(
            f"{prop.dotted_name}: {error.what}", hint=f"It is of type {prop.value_type.python_type.__name__}."
        ) from None
