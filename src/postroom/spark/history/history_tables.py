"""The tables that Spark can read from the MessageBox, their columns, and the option ``where``.

It is a filter over the columns of a table, in the language of docs/reference/filter-language.md. The names of columns
come from the table and every value is a parameter, so no text of the user becomes SQL.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import pyarrow as pa

from postroom.errors import BadFilter, DefinitionError
from postroom.filters.expression import Operator, Predicate
from postroom.filters.text import format_value, parse
from postroom.messagebox.connection import Connection
from postroom.messagebox.history import Condition, count_spool_pages, read_queue_range
from postroom.properties import Property

#: A task reads at least this many pages of the spool, or rows of the queues.
_PAGES_A_TASK = 128
_ROWS_A_TASK = 50_000
_OPERATORS = {
    Operator.EQ: "=",
    Operator.NE: "<>",
    Operator.LT: "<",
    Operator.LE: "<=",
    Operator.GT: ">",
    Operator.GE: ">=",
}


class ColumnKind(Enum):
    """The type of a column: Spark's type, Arrow's type, how it is selected, the Python type of values in filters (None
    if it cannot be compared), and the type of PostgreSQL that it is compared as."""

    ID = ("string", pa.string(), "{}::text", str, "uuid")
    TEXT = ("string", pa.string(), "{}", str, "text")
    INT = ("int", pa.int32(), "{}", int, "bigint")
    LONG = ("bigint", pa.int64(), "{}", int, "bigint")
    TIME = ("timestamp", pa.timestamp("us", tz="UTC"), "{}", datetime, "timestamptz")
    BYTES = ("binary", pa.binary(), "{}", None, "bytea")

    def __init__(self, spark: str, arrow: pa.DataType, selected: str, compared: type | None, postgres: str) -> None:
        self.spark = spark
        self.arrow = arrow
        self.selected = selected
        self.compared = compared
        self.postgres = postgres


@dataclass(frozen=True, kw_only=True)
class HistoryTable:
    """A table. ``costly`` columns are read only if they are selected by name."""

    name: str
    columns: dict[str, ColumnKind]
    range_key_type: str
    """The type of the column ``range_key``. Tasks read ranges of this column."""
    costly: frozenset[str] = frozenset()

    def schema(self, names: Sequence[str] | None = None) -> str:
        """Return the schema of these columns, or of all that are not costly, in Spark's syntax."""
        chosen = [name for name in self.columns if name not in self.costly] if names is None else names
        for name in chosen:
            if name not in self.columns:
                raise DefinitionError(
                    f"The table {self.name} has no column {name!r}.", hint=f"It has {', '.join(self.columns)}."
                )
        return ", ".join(f"{name} {self.columns[name].spark}" for name in chosen)

    def bounds(self, connection: Connection, tasks: int) -> list[str]:
        """Return the bounds of at most ``tasks`` ranges of a useful size."""
        if self.range_key_type == "tid":
            pages = count_spool_pages(connection)
            count = min(tasks, pages // _PAGES_A_TASK)
            return [f"({pages * n // count},0)" for n in range(1, count)]
        first, last, rows = read_queue_range(connection)
        count = min(tasks, rows // _ROWS_A_TASK)
        return [str(first + (last - first) * n // count) for n in range(1, count)]


_ID, _TEXT, _INT, _LONG, _TIME = ColumnKind.ID, ColumnKind.TEXT, ColumnKind.INT, ColumnKind.LONG, ColumnKind.TIME

MESSAGES = HistoryTable(
    name="messages",
    columns={
        "message_id": _ID,
        "published_at": _TIME,
        "published_by": _TEXT,
        "originator": _TEXT,
        "party": _TEXT,
        "message_type": _TEXT,
        "interchange_id": _TEXT,
        "receive_port": _TEXT,
        "parts": _INT,
        "content_type": _TEXT,
        "charset": _TEXT,
        "size": _LONG,
        "body": ColumnKind.BYTES,
    },
    range_key_type="tid",
    costly=frozenset({"body"}),
)
CONTEXTS = HistoryTable(
    name="contexts",
    columns={
        "message_id": _ID,
        "published_at": _TIME,
        "kind": _TEXT,
        "property": _TEXT,
        "value_type": _TEXT,
        "value": _TEXT,
    },
    range_key_type="tid",
)
QUEUES = HistoryTable(
    name="queues",
    columns={
        "seq": _LONG,
        "instance_id": _ID,
        "message_id": _ID,
        "host": _TEXT,
        "service_class": _TEXT,
        "service": _TEXT,
        "state": _TEXT,
        "task": _TEXT,
        "attempt": _INT,
        "priority": _INT,
        "enqueued_at": _TIME,
        "valid_from": _TIME,
        "suspended_at": _TIME,
        "error_code": _TEXT,
        "error_description": _TEXT,
        "adapter": _TEXT,
        "uri": _TEXT,
    },
    range_key_type="bigint",
)

TABLES = {table.name: table for table in (MESSAGES, CONTEXTS, QUEUES)}


def parse_where(text: str, table: HistoryTable) -> Condition:
    """Translate a filter into a condition of PostgreSQL; raise BadFilter if it cannot be read."""
    columns = [
        Property(f"{table.name}.{name}", kind.compared)
        for name, kind in table.columns.items()
        if kind.compared is not None
    ]
    unknown = f"The columns that can be compared are {', '.join(column.name for column in columns)}."
    try:
        filter = parse(text, columns, noun="column", unknown=unknown)
        groups = [[_condition(predicate, table) for predicate in group] for group in filter.groups]
    except BadFilter as error:
        raise BadFilter(f"The option where cannot be read. {error.what}", why=error.why, hint=error.hint) from None
    sql = " OR ".join(" AND ".join(condition for condition, _ in group) for group in groups)
    return f"({sql})", [value for group in groups for _, values in group for value in values]


def _condition(predicate: Predicate, table: HistoryTable) -> Condition:
    name = predicate.property.name
    kind = table.columns[name]
    if predicate.operator is Operator.EXISTS:
        return f"{name} IS NOT NULL", []
    value, parameter = predicate.value, f"%s::{kind.postgres}"
    if kind is ColumnKind.ID:
        try:
            value = str(uuid.UUID(str(value)))
        except ValueError:
            assert value is not None
            raise BadFilter(
                f"{name} is compared with {format_value(value)}, which is not an id.", hint="Write the whole id."
            ) from None
    if predicate.operator is Operator.BITAND:
        return f"({name} & {parameter}) <> 0", [value]
    # Text is compared by code point, as in every filter and in Spark.
    collation = ' COLLATE "C"' if kind is ColumnKind.TEXT else ""
    return f"{name}{collation} {_OPERATORS[predicate.operator]} {parameter}", [value]
