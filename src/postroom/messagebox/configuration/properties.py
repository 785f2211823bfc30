"""Reads the deployed properties, and finds one by the name that a user writes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from postroom.errors import DefinitionError, NotFound
from postroom.filters.text import to_bare_name
from postroom.messagebox.connection import Connection, read_value
from postroom.properties import Property
from postroom.values import ValueType


def read_property_types(connection: Connection) -> dict[str, ValueType]:
    """Return the types of all properties that filters may name, by key."""
    rows = connection.execute("SELECT key, value_type FROM properties ORDER BY key")
    return {key: ValueType(value_type) for key, value_type in rows}


def read_deployed_properties(connection: Connection) -> list[Property]:
    """Return every property that filters may name."""
    return [Property.from_key(key, value_type) for key, value_type in read_property_types(connection).items()]


def read_sensitive_keys(connection: Connection) -> frozenset[str]:
    """Return the keys of the sensitive properties."""
    return frozenset(key for (key,) in connection.execute("SELECT key FROM properties WHERE sensitive"))


def can_read_correlation_values(connection: Connection) -> bool:
    """Return True if the login may read the values that instances wait for. Operators may not (SEC-13)."""
    return bool(read_value(connection, "SELECT has_column_privilege('subscriptions', 'correlation_values', 'SELECT')"))


def find_property(name: str, properties: Iterable[Property]) -> Property:
    """Return the property that a user writes as ``Orders.Region``, or as ``Region`` if that is unique.

    Raise NotFound if there is none, and DefinitionError if the name is ambiguous."""
    known = list(properties)
    for found in (
        [prop for prop in known if prop.dotted_name == name],
        [prop for prop in known if to_bare_name(prop) == name],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise DefinitionError(
                f"{name} could be {' or '.join(sorted(prop.dotted_name for prop in found))}.",
                hint="Write the property's full name.",
            )
    names = [name for prop in known for name in (prop.dotted_name, to_bare_name(prop))]
    near = difflib.get_close_matches(name, names)
    raise NotFound(
        f"There is no property {name!r}.",
        why="A property is deployed by an application that promotes it, compares it in a filter, or declares it.",
        hint=f"Did you mean {' or '.join(dict.fromkeys(near))}?" if near else "Apply an application that declares it.",
    )
