"""Reads the deployed properties."""

from __future__ import annotations

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
