"""The tables that Spark can read from the MessageBox, and their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

import pyarrow as pa

from postroom.errors import DefinitionError
from postroom.messagebox.connection import Connection
from postroom.messagebox.history import count_spool_pages, read_queue_range

#: A task reads at least this many pages of the spool, or rows of the queues.
_PAGES_A_TASK = 128
_ROWS_A_TASK = 50_000


class ColumnKind(Enum):
    """The type of a column: Spark's type, Arrow's type, how it is selected, and the Python type of values in filters,
    or None if it cannot be compared."""

    ID = ("string", pa.string(), "{}::text", str)
    TEXT = ("string", pa.string(), "{}", str)
    INT = ("int", pa.int32(), "{}", int)
    LONG = ("bigint", pa.int64(), "{}", int)
    TIME = ("timestamp", pa.timestamp("us", tz="UTC"), "{}", datetime)
    BYTES = ("binary", pa.binary(), "{}", None)

    def __init__(self, spark: str, arrow: pa.DataType, selected: str, compared: type | None) -> None:
        self.spark = spark
        self.arrow = arrow
        self.selected = selected
        self.compared = compared


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
