"""Write rows into a table of PostgreSQL: the tasks copy them into a staging table and merge them by message id.

A chunk is one transaction of the target. A repeated chunk adds nothing, so it does not matter whether it was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Jsonb

from postroom.errors import DatabaseError, DefinitionError, DeliveryRefused, Unavailable
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage
from postroom.spark.sinks.row_format import to_row_failure
from postroom.spark.sinks.task import SinkTask

#: The result of a task for each chunk.
WRITTEN_SCHEMA = "written long"
_WRITTEN = pa.schema([("written", pa.int64())])

_KEY = "message_id"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the target. ``name`` is as the user wrote it."""

    url: str
    name: str

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.name.split("."))

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with (
            self._translate_errors(),
            psycopg.connect(
                self.url, autocommit=True, connect_timeout=10, application_name="postroom table"
            ) as connection,
        ):
            yield connection

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate the errors of psycopg in the block: they are caused by a row, or by the target."""
        try:
            yield
        except psycopg.Error as error:
            why = str(error).strip().partition("\n")[0]
            if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
                hint = "Correct the message or the table, and resume the instance."
                raise DeliveryRefused(f"The table {self.name} rejects the row.", why=why, hint=hint) from error
            if isinstance(error, psycopg.OperationalError):
                raise Unavailable(f"The database of the table {self.name} is not available.", why=why) from error
            raise DatabaseError(f"The table {self.name} cannot be written.", why=why) from error

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table if it is missing. Raise DefinitionError if an existing one has no unique message_id."""
        with self.connect() as connection:
            name = self.identifier.as_string(connection)
            found = connection.execute(
                "SELECT to_regclass(%s), EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
                " AND a.attnum = i.indkey[0] WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL"
                " AND i.indnkeyatts = 1 AND a.attname = %s)",
                (name, name, _KEY),
            ).fetchone()
            assert found is not None
            if found[0] is None:
                connection.execute(self._create(schema))
            elif not found[1]:
                raise DefinitionError(
                    f"The table {self.name} has no unique index on {_KEY} alone.",
                    why="Without it a repeated row would be inserted twice.",
                    hint=f"Run: CREATE UNIQUE INDEX ON {self.name} ({_KEY});",
                )

    def merge(
        self, connection: psycopg.Connection[tuple[Any, ...]], names: Sequence[str], rows: Sequence[Mapping[str, Any]]
    ) -> int:
        """Add the rows that the table does not have, all or none. Return the number of added rows."""
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        with self._translate_errors(), connection.transaction():
            connection.execute(
                sql.SQL("CREATE TEMP TABLE postroom_staging ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                    columns, self.identifier
                )
            )
            with connection.cursor().copy(
                sql.SQL("COPY pg_temp.postroom_staging ({}) FROM STDIN").format(columns)
            ) as copy:
                for row in rows:
                    copy.write_row([_to_stored(row[name]) for name in names])
            merged = connection.execute(
                sql.SQL(
                    "INSERT INTO {} ({}) SELECT {} FROM pg_temp.postroom_staging ON CONFLICT ({}) DO NOTHING"
                ).format(self.identifier, columns, columns, sql.Identifier(_KEY))
            )
            # Inside the same transaction, because a chunk may be merged row by row.
            connection.execute("DROP TABLE pg_temp.postroom_staging")
            return merged.rowcount

    def _create(self, schema: pa.Schema) -> sql.Composed:
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_column_type(field))) for field in schema
        ]
        return sql.SQL("CREATE TABLE {} ({})").format(self.identifier, sql.SQL(", ").join(columns))


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """The function that Spark runs on the chunks of a batch for a table."""

    task: SinkTask
    table: Table

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for connection, rows, messages in self.task.read_chunks(batches):
            with self.table.connect() as target:
                written = self._merge(target, rows.to_pylist(), messages, connection)
            yield pa.RecordBatch.from_pylist([{"written": written}], schema=_WRITTEN)

    def _merge(
        self,
        target: psycopg.Connection[tuple[Any, ...]],
        rows: list[dict[str, Any]],
        messages: list[ClaimedMessage],
        connection: Connection,
    ) -> int:
        """Merge the rows that the table accepts. Find the others by bisection, and suspend or route their messages."""
        try:
            return self.table.merge(target, self.task.rows.schema.names, rows)
        except Exception as error:
            failure = to_row_failure(error)
            if len(rows) == 1:
                self.task.suspend_or_route(connection, messages[0], failure)
                return 0
        half = len(rows) // 2
        first = self._merge(target, rows[:half], messages[:half], connection)
        return first + self._merge(target, rows[half:], messages[half:], connection)


_TYPES = (
    (pa.types.is_string, "text"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_decimal, "numeric"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_timestamp, "timestamptz"),
    (pa.types.is_date, "date"),
    (pa.types.is_binary, "bytea"),
)


def _column_type(field: pa.Field) -> str:
    if field.name == _KEY:
        return "uuid PRIMARY KEY"
    # Lists and structures are JSON.
    return next((name for fits, name in _TYPES if fits(field.type)), "jsonb")


# It also encodes the decimals, dates and bytes in lists and structures, which Python's own encoder cannot.
_json = msgspec.json.Encoder(decimal_format="number").encode


def _to_stored(value: Any) -> Any:
    return Jsonb(value, dumps=_json) if isinstance(value, list | dict) else value
