"""Spark's filters as conditions of PostgreSQL: only those that mean exactly the same in both."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from postroom.spark.history.tables import ColumnKind, HistoryTable

#: A condition with its parameters.
Condition = tuple[str, list[Any]]

_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "IS NOT DISTINCT FROM",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_PARTS_OF_TEXT: dict[type[Filter], str] = {
    StringStartsWith: "starts_with({0}, {1})",
    StringEndsWith: "right({0}, length({1})) = {1}",
    StringContains: "strpos({0}, {1}) > 0",
}


def condition(filter: Filter, table: HistoryTable) -> Condition | None:
    """What a filter means over a table; None if Spark has to look at it itself."""
    if isinstance(filter, Not):
        inner = condition(filter.child, table)
        return None if inner is None else (f"NOT ({inner[0]})", inner[1])
    path: tuple[str, ...] = getattr(filter, "attribute", ())
    if len(path) != 1 or path[0] not in table.columns:
        return None
    column, kind = path[0], table.columns[path[0]]
    if isinstance(filter, IsNull):
        return f"{column} IS NULL", []
    if isinstance(filter, IsNotNull):
        return f"{column} IS NOT NULL", []
    value = getattr(filter, "value", None)
    if isinstance(filter, In):
        if not all(_fits(one, kind) for one in value or ()):
            return None
        return f"{_compared(column, kind)} = ANY (%s::{_TYPES[kind]}[])", [list(value or ())]
    if type(filter) in _PARTS_OF_TEXT:
        if kind not in (ColumnKind.TEXT, ColumnKind.ID) or not _fits(value, ColumnKind.TEXT):
            return None
        text = _PARTS_OF_TEXT[type(filter)]
        return text.format(f"{column}::text", "%s::text"), [value] * text.count("{1}")
    if type(filter) in _COMPARISONS and _fits(value, kind):
        return f"{_compared(column, kind)} {_COMPARISONS[type(filter)]} %s::{_TYPES[kind]}", [value]
    return None


_TYPES = {
    ColumnKind.ID: "uuid",
    ColumnKind.TEXT: "text",
    ColumnKind.INT: "integer",
    ColumnKind.LONG: "bigint",
    ColumnKind.TIME: "timestamptz",
}


def _compared(column: str, kind: ColumnKind) -> str:
    # Spark compares text by its bytes.
    return f'{column} COLLATE "C"' if kind is ColumnKind.TEXT else column


def _fits(value: object, kind: ColumnKind) -> bool:
    """Whether PostgreSQL can compare it in the column's own type, as Spark would in its own."""
    match kind:
        case ColumnKind.ID:
            return isinstance(value, str) and _is_id(value)
        case ColumnKind.TEXT:
            return isinstance(value, str) and "\0" not in value
        case ColumnKind.INT:
            return type(value) is int and -(2**31) <= value < 2**31
        case ColumnKind.LONG:
            return type(value) is int and -(2**63) <= value < 2**63
        case ColumnKind.TIME:
            return isinstance(value, datetime) and value.tzinfo is not None
    return False


def _is_id(text: str) -> bool:
    """In the form that Spark sees: ids that are written so sort as their text does."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
