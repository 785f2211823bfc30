"""Parses a Spark DDL schema, such as ``id bigint, region string, total decimal(12,2)``, without Spark.

Spark parses the text itself at run time. This parser reports problems when an application is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from postroom.values import ValueType

_COLUMN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>\w+))\s*:?\s+(?P<type>.+?)"
    r"(?P<required>\s+not\s+null)?(?:\s+comment\s+(?:'[^']*'|\"[^\"]*\"))?\s*",
    re.IGNORECASE | re.DOTALL,
)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_TEXT = re.compile(r"(?:string|(?:var)?char\s*\(\s*\d+\s*\))")
_NESTED = re.compile(r"(?:array|map|struct)\s*<.*>", re.DOTALL)

#: The simple types, and the type of a property for each. None if no property can have the values.
_TYPES: dict[str, ValueType | None] = {
    "boolean": ValueType.BOOL,
    "tinyint": ValueType.INT,
    "byte": ValueType.INT,
    "smallint": ValueType.INT,
    "short": ValueType.INT,
    "int": ValueType.INT,
    "integer": ValueType.INT,
    "bigint": ValueType.INT,
    "long": ValueType.INT,
    "float": ValueType.FLOAT,
    "real": ValueType.FLOAT,
    "double": ValueType.FLOAT,
    "timestamp": ValueType.DATETIME,
    "timestamp_ltz": ValueType.DATETIME,
    "timestamp_ntz": None,
    "date": None,
    "binary": None,
    "variant": None,
}

_MAX_DIGITS = 38


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a schema. ``type`` is a Spark type in lower case."""

    name: str
    type: str

    @property
    def value_type(self) -> ValueType | None:
        """The type of a property with values of this column, or None."""
        if _TEXT.fullmatch(self.type):
            return ValueType.STR
        if _DECIMAL.fullmatch(self.type):
            return ValueType.DECIMAL
        return _TYPES.get(self.type)

    def can_promote(self, value_type: ValueType) -> bool:
        """Return True if a property of this type can be promoted from the column."""
        if value_type is ValueType.DECIMAL and self.value_type is ValueType.INT:
            return True
        return self.value_type is value_type

    @property
    def is_nested(self) -> bool:
        return _NESTED.fullmatch(self.type) is not None or self.type == "variant"

    @property
    def is_bytes(self) -> bool:
        """True if its content can be a body without conversion."""
        return self.type == "binary" or self.value_type is ValueType.STR


def parse_columns(schema: str, *, called: str = "schema") -> tuple[Column, ...]:
    """Parse the columns of a schema. Raise ValueError with the problem; ``called`` is the name of the argument."""
    columns = []
    for text in _split_columns(schema):
        found = _COLUMN.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{called}: {text.strip()!r} is not a column; write its name and its type, as in 'id bigint'."
            )
        name = found["plain"] or found["quoted"].replace("``", "`")
        columns.append(Column(name=name, type=" ".join(found["type"].lower().split())))
    for column in columns:
        if not _is_known(column):
            raise ValueError(
                f"{called}: the column {column.name!r} has the type {column.type!r}, which is not a Spark type."
            )
    names = [column.name.lower() for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{called}: there are two columns named {name!r}.")
    return tuple(columns)


def _split_columns(schema: str) -> Iterator[str]:
    """Split a schema at the commas that are outside brackets and quotes."""
    depth, quote, start = 0, "", 0
    for position, character in enumerate(schema):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in "(<":
            depth += 1
        elif character in ")>":
            depth -= 1
        elif character == "," and depth == 0:
            yield schema[start:position]
            start = position + 1
    yield schema[start:]


def _is_known(column: Column) -> bool:
    if (digits := _DECIMAL.fullmatch(column.type)) is not None:
        precision, scale = int(digits[1] or 10), int(digits[2] or 0)
        return 1 <= precision <= _MAX_DIGITS and scale <= precision
    return column.type in _TYPES or _TEXT.fullmatch(column.type) is not None or column.is_nested
