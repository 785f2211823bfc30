"""What the rows of a sink are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from postroom.adapters.spark_schema import read_columns
from postroom.errors import BadValue
from postroom.properties import Property
from postroom.values import ValueType

#: In every row, before all others.
FIXED_COLUMNS = ("message_id", "interchange_id", "message_type", "received_at")
BODY_COLUMN = "body"
#: The directories of batches are a column for whoever reads them all.
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


def columns_of(given: object) -> tuple[SinkColumn, ...]:
    """The columns that a user asks for: ``{"region": Region}``, or ``[Region]`` under the properties' own names."""
    if isinstance(given, Mapping):
        pairs: Iterable[tuple[object, object]] = given.items()
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = ((getattr(one, "name", one), one) for one in given)
    else:
        raise BadValue(f"{given!r} are not columns.", hint='Write columns={"region": Region}, or columns=[Region].')
    return tuple(_column(name, prop) for name, prop in pairs)


def _column(name: object, prop: object) -> SinkColumn:
    if isinstance(prop, SinkColumn):
        return prop
    if isinstance(prop, Mapping):  # as it is stored
        return SinkColumn(**prop)
    if not isinstance(prop, Property) or not isinstance(name, str):
        raise BadValue(f"{prop!r} is not a property.", hint='Write columns={"region": Region}, or columns=[Region].')
    return SinkColumn(name=name, key=prop.key, type=int(prop.value_type))


def with_partitions(
    columns: tuple[SinkColumn, ...], partition_by: Sequence[object]
) -> tuple[tuple[SinkColumn, ...], tuple[str, ...]]:
    """The columns with those to divide by among them, and the names of these. A property that is none becomes one."""
    names: list[str] = []
    for one in partition_by:
        if isinstance(one, str):
            names.append(one)
            continue
        (column,) = columns_of([one])
        there = next((each for each in columns if each.key == column.key), None)
        columns = columns if there else (*columns, column)
        names.append((there or column).name)
    return columns, tuple(names)


def column_problems(columns: Sequence[SinkColumn], others: Sequence[str]) -> list[str]:
    """What is wrong with the names; ``others`` are there besides."""
    found = []
    taken = {name.lower() for name in others}
    for column in columns:
        if not _NAME.fullmatch(column.name):
            found.append(f"column {column.name!r}: use letters, digits and underscores, not more than 63.")
        elif column.name.lower() in taken:
            found.append(f"column {column.name!r} is there twice.")
        taken.add(column.name.lower())
    return found


def parsed_names(ddl: str) -> list[str]:
    """The names of the columns in a schema as Spark writes it; nested fields are not columns. ValueError says what is
    wrong with it."""
    return [column.name for column in read_columns(ddl, called="parse")] if ddl.strip() else []
