"""The columns of the rows of a sink."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from postroom.adapters.spark_schema import parse_columns
from postroom.errors import BadValue
from postroom.properties import Property
from postroom.stored_definitions import Converted
from postroom.values import ValueType

#: The first columns of every row.
FIXED_COLUMNS = ("message_id", "interchange_id", "message_type", "received_at")
BODY_COLUMN = "body"
#: Readers of all batches get the directories of batches as a column.
BATCH_COLUMN = "batch"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class SinkColumn(BaseModel):
    """A column with the values of one property, promoted or written; null where a message has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    key: str
    type: int

    @property
    def value_type(self) -> ValueType:
        return ValueType(self.type)

    def as_property(self) -> Property:
        return Property.from_key(self.key, self.value_type)


def to_columns(given: object) -> tuple[SinkColumn, ...]:
    """Return the declared columns: ``{"region": Region}``, or ``[Region]`` with the names of the properties."""
    if isinstance(given, Mapping):
        pairs: Iterable[tuple[object, object]] = given.items()
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = ((getattr(column, "name", column), column) for column in given)
    else:
        raise BadValue(
            f"{given!r} is not a list of columns.", hint='Write columns={"region": Region}, or columns=[Region].'
        )
    return tuple(_to_column(name, prop) for name, prop in pairs)


def _to_column(name: object, prop: object) -> SinkColumn:
    if isinstance(prop, SinkColumn):
        return prop
    if isinstance(prop, Mapping):  # as it is stored
        return SinkColumn(**prop)
    if not isinstance(prop, Property) or not isinstance(name, str):
        raise BadValue(f"{prop!r} is not a property.", hint='Write columns={"region": Region}, or columns=[Region].')
    return SinkColumn(name=name, key=prop.key, type=int(prop.value_type))


#: The columns of rows. The argument has properties, by the names of the columns or without names.
Columns = Converted[
    Mapping[str, Property] | Sequence[Property], Annotated[tuple[SinkColumn, ...], BeforeValidator(to_columns)]
]


def add_partition_columns(
    columns: tuple[SinkColumn, ...], partition_by: Sequence[object]
) -> tuple[tuple[SinkColumn, ...], tuple[str, ...]]:
    """Return the columns including the partition columns, and the names of the partition columns."""
    names: list[str] = []
    for partition in partition_by:
        if isinstance(partition, str):
            names.append(partition)
            continue
        (column,) = to_columns([partition])
        there = next((each for each in columns if each.key == column.key), None)
        columns = columns if there else (*columns, column)
        names.append((there or column).name)
    return columns, tuple(names)


def find_column_problems(columns: Sequence[SinkColumn], others: Sequence[str]) -> list[str]:
    """Return the problems of the names of columns. ``others`` are names that are already used."""
    found = []
    taken = {name.lower() for name in others}
    for column in columns:
        if not _NAME.fullmatch(column.name):
            found.append(f"column {column.name!r}: use at most 63 letters, digits and underscores.")
        elif column.name.lower() in taken:
            found.append(f"column {column.name!r} exists twice.")
        taken.add(column.name.lower())
    return found


def parse_column_names(ddl: str) -> list[str]:
    """Return the names of the columns in a Spark DDL schema, without nested fields.

    Raise ValueError if the schema is invalid.
    """
    return [column.name for column in parse_columns(ddl, called="parse")] if ddl.strip() else []
