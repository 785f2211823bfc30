"""Sends messages as rows of a PostgreSQL table. A batch is one transaction, and each message a savepoint of it."""

from __future__ import annotations

import csv
import io
import json
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from postroom.adapters.contract import Attempt, BatchSendAdapter, Outgoing, get_body
from postroom.adapters.postgres.definition import Format, Postgres
from postroom.adapters.postgres_server import first_line, format_address, open_connection
from postroom.errors import DeliveryFailure, DeliveryRefused
from postroom.message import Message, Part

#: Errors that the same row causes again.
_REFUSED = (psycopg.DataError, psycopg.errors.NotNullViolation, psycopg.errors.CheckViolation)

_Connection = psycopg.Connection[tuple[Any, ...]]
Row = dict[str, str | None]

_encode = msgspec.json.Encoder(decimal_format="number").encode


class PostgresSender(BatchSendAdapter):
    """Inserts or updates the rows of messages. Each thread uses a connection of its own."""

    def __init__(self, definition: Postgres) -> None:
        self._definition = definition
        self._table = sql.Identifier(*definition.table.split("."))
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._has_binary_body: bool | None = None
        self._array_columns: set[str] | None = None

    def send_batch(self, batch: Sequence[Outgoing]) -> list[Exception | None]:
        """Write the rows of all messages in one transaction. A message that fails leaves no row."""
        with self._translate_errors(), self._borrow() as connection, connection.transaction():
            return [self._send_one(connection, message, attempt) for message, attempt in batch]

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send_one(self, connection: _Connection, message: Message, attempt: Attempt) -> Exception | None:
        try:
            rows = self._read_rows(connection, message, attempt)
            with connection.transaction():
                if not self._was_delivered(connection, message, attempt):
                    for row in rows:
                        connection.execute(self._build_statement(list(row)), list(row.values()))
        except psycopg.OperationalError:
            raise  # the connection is lost, and the batch with it
        except psycopg.Error as error:
            return self._to_failure(error)
        except UnicodeEncodeError as error:  # JSON can contain half of a surrogate pair
            return DeliveryRefused("The document contains a character that is not valid Unicode.", why=str(error))
        except Exception as error:
            return error
        return None

    def _read_rows(
        self, connection: _Connection, message: Message, attempt: Attempt
    ) -> list[dict[str, str | bytes | None]]:
        definition = self._definition
        content = _read(get_body(message))
        rows: list[Row] = (
            [{}]
            if definition.format is None
            else read_rows(content, definition.format, definition.fields, self._find_array_columns(connection))
        )
        shared: dict[str, str | bytes | None] = {
            column.name: format_value(message.context.get(column.as_property())) for column in definition.columns
        }
        if definition.body is not None:
            shared[definition.body] = content if self._has_bytes(connection) else _decode(content)
        if definition.delivery_id is not None:
            shared[definition.delivery_id] = str(_delivery_id(message, attempt))
        complete = [{**row, **shared} for row in rows]
        if not all(complete):
            raise DeliveryRefused("The document has a row without fields, and no other column is written.")
        invalid = next((name for row in complete for name in row if not name or "\0" in name), None)
        if invalid is not None:
            raise DeliveryRefused(f"The document has the field {invalid!r}, which cannot be the name of a column.")
        return complete

    def _was_delivered(self, connection: _Connection, message: Message, attempt: Attempt) -> bool:
        """Return True if an earlier attempt has inserted the rows."""
        if self._definition.delivery_id is None:
            return False
        delivery_id = str(_delivery_id(message, attempt))
        # Another host may repeat the message while this one still sends it.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (delivery_id,))
        query = sql.SQL("SELECT 1 FROM {} WHERE {} = {} LIMIT 1").format(
            self._table, sql.Identifier(self._definition.delivery_id), sql.Literal(delivery_id)
        )
        return connection.execute(query).fetchone() is not None

    def _build_statement(self, columns: Sequence[str]) -> sql.Composed:
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            self._table,
            sql.SQL(", ").join(map(_quote, columns)),
            sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
        )
        if self._definition.mode == "insert":
            return statement
        key = self._definition.key
        changes = [sql.SQL("{0} = EXCLUDED.{0}").format(_quote(name)) for name in columns if name not in key]
        action = sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(changes)) if changes else sql.SQL("DO NOTHING")
        return sql.SQL("{} ON CONFLICT ({}) {}").format(statement, sql.SQL(", ").join(map(_quote, key)), action)

    def _find_array_columns(self, connection: _Connection) -> Collection[str]:
        """Return the columns of the table whose types are arrays."""
        if self._array_columns is None:
            found = connection.execute(
                "SELECT attname, typcategory = 'A' FROM pg_attribute JOIN pg_type t ON t.oid = atttypid"
                " WHERE attrelid = to_regclass(%s) AND attnum > 0",
                (self._table.as_string(connection),),
            ).fetchall()
            if not found:
                return ()
            self._array_columns = {name for name, is_array in found if is_array}
        return self._array_columns

    def _has_bytes(self, connection: _Connection) -> bool:
        """Return True if the column of the body has the type bytea."""
        if self._has_binary_body is None:
            found = connection.execute(
                "SELECT atttypid = 'bytea'::regtype FROM pg_attribute"
                " WHERE attrelid = to_regclass(%s) AND attname = %s",
                (self._table.as_string(connection), self._definition.body),
            ).fetchone()
            if found is None:
                return False
            self._has_binary_body = bool(found[0])
        return self._has_binary_body

    def _to_failure(self, error: psycopg.Error) -> DeliveryFailure | DeliveryRefused:
        what, why = f"The table {self._definition.table} rejects the row.", first_line(error)
        failure = DeliveryRefused(what, why=why) if isinstance(error, _REFUSED) else DeliveryFailure(what, why=why)
        failure.__cause__ = error
        return failure

    @contextmanager
    def _borrow(self) -> Iterator[_Connection]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or connection.closed:
            connection = open_connection(self._definition.url, self._definition.options)
        try:
            yield connection
        except BaseException:
            with suppress(psycopg.Error):
                connection.close()
            raise
        with self._lock:
            self._idle.append(connection)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            database = format_address(self._definition.url)
            raise DeliveryFailure(f"The rows could not be written to {database}.", why=first_line(error)) from error


def _quote(name: str) -> sql.Identifier:
    """Return the name of a column for a statement with parameters, in which psycopg reads % as a placeholder."""
    return sql.Identifier(name.replace("%", "%%"))


def _delivery_id(message: Message, attempt: Attempt) -> uuid.UUID:
    """Return an id that is the same in every attempt. A message whose body was replaced has another one."""
    return uuid.uuid5(attempt.instance_id, str(message.message_id))


def _read(part: Part) -> bytes:
    content = b"".join(part.body.chunks())
    if len(content) != part.body.size:
        raise DeliveryFailure(
            f"Part {part.name!r} has {len(content)} bytes, but its size is {part.body.size}.",
            hint="Its content changed or was truncated while it was read.",
        )
    return content


def _decode(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DeliveryRefused(
            "The body is not UTF-8, and its column is not of the type bytea.", why=str(error)
        ) from error


def read_rows(
    content: bytes, format: Format, fields: Mapping[str, str] | None, array_columns: Collection[str] = ()
) -> list[Row]:
    """Return the rows of a document. A list is JSON, or an array of PostgreSQL in ``array_columns``. Raise
    DeliveryRefused if the document is malformed, or has other fields."""
    try:
        text = content.decode("utf-8-sig")
        documents = _read_json(text) if format == "json" else _read_csv(text)
    except ValueError as error:  # or the text cannot be decoded
        raise DeliveryRefused(f"The document is not valid {format.upper()}.", why=str(error)) from error
    rows = (
        documents
        if fields is None
        else [{column: _find(document, path) for column, path in fields.items()} for document in documents]
    )
    return [
        {
            column: _format_array(value) if column in array_columns and isinstance(value, list) else format_value(value)
            for column, value in row.items()
        }
        for row in rows
    ]


def _format_array(values: Sequence[object]) -> str:
    """Return the literal of an array of PostgreSQL. Lists inside are further dimensions."""
    return "{" + ",".join(_format_array(one) if isinstance(one, list) else _quote_element(one) for one in values) + "}"


def _quote_element(value: object) -> str:
    text = format_value(value)
    return "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def format_value(value: object) -> str | None:
    """Return a value as a text that PostgreSQL can convert."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return _encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _read_json(text: str) -> list[dict[str, object]]:
    found = json.loads(text, parse_float=Decimal, parse_constant=_reject_constant)
    documents = found if isinstance(found, list) else [found]
    if not all(isinstance(document, dict) for document in documents):
        raise ValueError("a row is an object")
    return documents


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def _read_csv(text: str) -> list[dict[str, object]]:
    """Return the lines by the names in the first line. An empty cell is NULL."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if any(None in line or None in line.values() for line in lines):
        raise ValueError("a line has more or fewer cells than the first line")
    return [{name: cell or None for name, cell in line.items()} for line in lines]


def _find(document: Mapping[str, object], path: str) -> object:
    """Return the value at a path of keys, or None if there is none. A key with a dot is found at the top."""
    if path in document:
        return document[path]
    found: object = document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found
