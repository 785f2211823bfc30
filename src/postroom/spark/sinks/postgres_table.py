"""Write rows into a table of PostgreSQL: the tasks copy them, and merge them by message id if some exist.

A chunk is one transaction of the target. A repeated chunk adds nothing, so it does not matter whether it was committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.conninfo import make_conninfo

from postroom.errors import DatabaseError, DefinitionError, Unavailable
from postroom.messagebox.connection import Connection
from postroom.spark.sinks.row_format import row_rejection, to_row_failure
from postroom.spark.sinks.task import RowChunk, SinkTask

#: The result of a task for each chunk.
WRITTEN_SCHEMA = "written long"
_WRITTEN = pa.schema([("written", pa.int64())])

_KEY = "message_id"
_SETTINGS: Mapping[str, str] = {"connect_timeout": "10", "application_name": "postroom table"}
#: The number of bytes that are sent to the server at a time.
_COPY_BYTES = 1 << 18
#: A backslash escapes; it is escaped first.
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

# It also encodes the decimals, dates and bytes in lists and structures, which Python's own encoder cannot.
_encode_json = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of the target. ``name`` is as the user wrote it. ``settings`` of the connection may contain secrets."""

    url: str
    name: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.name.split("."))

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with (
            self._translate_errors(),
            psycopg.connect(make_conninfo(self.url, **{**_SETTINGS, **self.settings}), autocommit=True) as connection,
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
                raise row_rejection(self.name, why) from error
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

    def add(self, connection: psycopg.Connection[tuple[Any, ...]], rows: pa.RecordBatch) -> None:
        """Add the rows that the table does not have, all or none. Usually it has none of them, and COPY is enough."""
        text = _to_copy_text(rows)
        columns = sql.SQL(", ").join(map(sql.Identifier, rows.schema.names))
        with self._translate_errors():
            try:
                _copy(connection, self.identifier, columns, text)
            # COPY cannot skip rows, and does not support row-level security.
            except (psycopg.errors.UniqueViolation, psycopg.errors.FeatureNotSupported):
                self._merge(connection, columns, text)

    def _merge(self, connection: psycopg.Connection[tuple[Any, ...]], columns: sql.Composed, text: memoryview) -> None:
        with connection.transaction():
            connection.execute(
                sql.SQL("CREATE TEMP TABLE postroom_staging ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                    columns, self.identifier
                )
            )
            _copy(connection, sql.Identifier("pg_temp", "postroom_staging"), columns, text)
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} ({}) SELECT {} FROM pg_temp.postroom_staging ON CONFLICT ({}) DO NOTHING"
                ).format(self.identifier, columns, columns, sql.Identifier(_KEY))
            )

    def _create(self, schema: pa.Schema) -> sql.Composed:
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_column_type(field))) for field in schema
        ]
        return sql.SQL("CREATE TABLE {} ({})").format(self.identifier, sql.SQL(", ").join(columns))


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """The function that Spark runs on the ranges of a batch for a table."""

    task: SinkTask
    table: Table

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            target: psycopg.Connection[tuple[Any, ...]] | None = None
            for connection, chunk in self.task.read_chunks(batches):
                target = target or stack.enter_context(self.table.connect())
                self._add(target, chunk, connection)
                yield pa.RecordBatch.from_pylist([{"written": len(chunk.seqs)}], schema=_WRITTEN)

    def _add(self, target: psycopg.Connection[tuple[Any, ...]], chunk: RowChunk, connection: Connection) -> None:
        def add(first: int, end: int) -> None:
            try:
                self.table.add(target, chunk.rows.slice(first, end - first))
            except Exception as error:
                raise to_row_failure(error) from error

        if chunk.seqs:
            self.task.write_accepted(connection, chunk.seqs, add)


def _copy(
    connection: psycopg.Connection[tuple[Any, ...]], table: sql.Identifier, columns: sql.Composed, text: memoryview
) -> None:
    with connection.cursor().copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)) as copy:
        for start in range(0, len(text), _COPY_BYTES):
            copy.write(text[start : start + _COPY_BYTES])


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


def _to_copy_text(rows: pa.RecordBatch) -> memoryview:
    """Return the rows for ``COPY … FROM STDIN``."""
    fields = [_to_text(column) for column in rows.columns]
    lines = pc.binary_join_element_wise(*fields, "\t", null_handling="replace", null_replacement="\\N")
    everything = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return memoryview(pc.binary_join(everything, "\n")[0].as_buffer())


def _to_text(column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        values = [None if value is None else _encode_json(value) for value in column.to_pylist()]
        return _escape(pa.array(values, pa.binary()).cast(pa.string()))
    if pa.types.is_string(column.type):
        return _escape(column)
    if pa.types.is_binary(column.type):
        return _to_hex(column)
    return column.cast(pa.string())


def _escape(column: pa.Array) -> pa.Array:
    data = column.buffers()[2]
    found = b"" if data is None else memoryview(data).tobytes()
    for character, escaped in _ESCAPES.items():
        if character.encode() in found:
            column = pc.replace_substring(column, character, escaped)
    return column


def _to_hex(column: pa.Array) -> pa.Array:
    r"""Return the text form of bytes: ``\x`` and two digits for each byte. The backslash is escaped."""
    validity, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    digits: Any = b"" if data is None else data.to_pybytes()[ends[0] : ends[-1]].hex().encode()
    moved = pa.py_buffer(((ends - ends[0]) * 2).astype(np.int32).tobytes())
    values = pa.Array.from_buffers(pa.string(), len(column), [None, moved, pa.py_buffer(digits)])
    texts = pc.binary_join_element_wise("\\\\x", values, "")
    return texts if validity is None else pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
