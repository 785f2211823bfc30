"""Convert the messages of a batch to the rows of a sink, with Arrow. All kinds of sinks use the same rows.

A message that cannot be converted is returned with its failure, and does not affect the other messages.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.json as pa_json

from postroom.adapters.sink.columns import BODY_COLUMN, FIXED_COLUMNS, SinkColumn
from postroom.adapters.sink.definition import Body
from postroom.errors import BadValue, DeliveryRefused, MessageFailure, is_environment_error
from postroom.message import Message
from postroom.system_properties import BTS
from postroom.values import ValueType

#: Maximum size of a body, because each task has one in memory.
MAX_BODY_SIZE = 64 << 20

_MAX_DETAIL = 300

ARROW_TYPES = {
    ValueType.STR: pa.string(),
    ValueType.INT: pa.int64(),
    ValueType.DECIMAL: pa.decimal128(38, 18),
    ValueType.FLOAT: pa.float64(),
    ValueType.BOOL: pa.bool_(),
    ValueType.DATETIME: pa.timestamp("us", tz="UTC"),
}
_FIXED = (pa.string(), pa.string(), pa.string(), pa.timestamp("us", tz="UTC"))


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A message that cannot be converted: its index in the given messages, and the failure."""

    index: int
    failure: MessageFailure


@dataclass(frozen=True, kw_only=True)
class RowFormat:
    """The columns of the rows. ``parsed`` are the columns that are read from JSON bodies."""

    columns: tuple[SinkColumn, ...]
    body: Body
    parsed: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(name, kind) for name, kind in zip(FIXED_COLUMNS, _FIXED, strict=True)]
        fields += [pa.field(column.name, ARROW_TYPES[column.value_type]) for column in self.columns]
        fields += list(self.parsed or ())
        if self.body != "none":
            fields.append(pa.field(BODY_COLUMN, pa.binary() if self.body == "binary" else pa.string()))
        return pa.schema(fields)

    def convert(self, messages: Sequence[tuple[Message, datetime | None]]) -> tuple[pa.RecordBatch, list[Refused]]:
        """Return the rows of the messages in order, and the messages that cannot be converted."""
        refused: list[Refused] = []
        values: list[_RowValues] = []
        for index, (message, received_at) in enumerate(messages):
            try:
                values.append(self._read_values(index, message, received_at))
            except Exception as error:
                refused.append(Refused(index=index, failure=to_row_failure(error)))
        with suppress(Exception):
            return self._batch(values), refused
        # At least one message makes the conversion fail. Convert each alone to find it.
        batches: list[pa.RecordBatch] = []
        for row in values:
            try:
                batches.append(self._batch([row]))
            except Exception as error:
                refused.append(Refused(index=row.index, failure=to_row_failure(error)))
        combined = pa.concat_batches(batches) if batches else self._batch([])
        return combined, sorted(refused, key=lambda refusal: refusal.index)

    def _read_values(self, index: int, message: Message, received_at: datetime | None) -> _RowValues:
        body = _read_body(message) if self.body != "none" or self.parsed is not None else b""
        values = self._values(message, received_at, body)
        return _RowValues(index=index, values=values, line=b"" if self.parsed is None else to_line(body))

    def _values(self, message: Message, received_at: datetime | None, body: bytes) -> list[Any]:
        context = message.context
        row: list[Any] = [
            str(message.message_id),
            context.get(BTS.InterchangeID),
            context.get(BTS.MessageType),
            received_at,
            *(_value(column, message) for column in self.columns),
        ]
        if self.body != "none":
            row.append(body if self.body == "binary" else _text(message, body))
        return row

    def _batch(self, rows: Sequence[_RowValues]) -> pa.RecordBatch:
        names = [*FIXED_COLUMNS, *(column.name for column in self.columns)]
        names += [BODY_COLUMN] if self.body != "none" else []
        schema = self.schema
        by_name = {
            name: pa.array([row.values[n] for row in rows], type=schema.field(name).type)
            for n, name in enumerate(names)
        }
        if self.parsed is not None:
            parsed = read_lines([row.line for row in rows], self.parsed)
            by_name |= {name: parsed.column(name).combine_chunks() for name in parsed.schema.names}
        return pa.RecordBatch.from_arrays([by_name[name] for name in schema.names], schema=schema)


@dataclass(frozen=True, kw_only=True)
class _RowValues:
    """The values of a message: its index, the values of the columns, and its JSON on one line."""

    index: int
    values: list[Any]
    line: bytes


def _read_body(message: Message) -> bytes:
    body = message.body
    if body is None:
        raise DeliveryRefused(
            f"Message {message.message_id} has no body part.",
            hint="Set body='none' for the sink, or terminate the instance.",
        )
    if body.body.size > MAX_BODY_SIZE:
        raise DeliveryRefused(
            f"The body has {body.body.size:,} bytes, but a row of a sink may have {MAX_BODY_SIZE:,} at most.",
            hint="Set body='none' for the sink, or send such messages to a File port.",
        )
    return b"".join(body.body.chunks())


def _text(message: Message, body: bytes) -> str:
    assert message.body is not None
    charset = message.body.charset or "utf-8"
    try:
        return body.decode(charset)
    except (UnicodeDecodeError, LookupError) as error:
        raise DeliveryRefused(
            f"The body is not text in {charset}.", why=str(error), hint="Set body='binary' for the sink."
        ) from None


def _value(column: SinkColumn, message: Message) -> Any:
    prop = column.as_property()
    value = message.context.get(prop)
    if value is None:
        return None
    try:
        checked = prop.check(value, promoted=False)
        pa.scalar(checked, type=ARROW_TYPES[column.value_type])
    except (BadValue, pa.ArrowException) as error:
        raise DeliveryRefused(
            f"{prop.dotted_name} does not fit into the column {column.name!r}.",
            why=str(error).partition("\n")[0],
            hint="A Decimal has 20 digits before and 18 after the point in a row.",
        ) from None
    return checked


_decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def to_line(body: bytes) -> bytes:
    try:
        document = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DeliveryRefused(
            "The body is not JSON.", why=str(error), hint="Correct the body and resume the instance."
        ) from None
    if not isinstance(document, dict):
        raise DeliveryRefused("The body is JSON, but not an object.", hint="Correct the body and resume the instance.")
    # Line ends are only between tokens: inside strings they are escaped.
    return body.replace(b"\n", b" ").replace(b"\r", b" ")


def read_lines(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    if not lines:
        return schema.empty_table()
    try:
        return pa_json.read_json(
            io.BytesIO(b"\n".join(lines)),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=max(map(len, lines)) + (1 << 20)),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise DeliveryRefused(
            "The body does not have the columns of the sink.",
            why=str(error),
            hint="Correct the body and resume the instance, or change the sink's parse=.",
        ) from None


def to_row_failure(error: Exception) -> MessageFailure:
    """Return the failure of a message from the error of its conversion.

    Raise an environment error again. It ends the attempt, and the batch is kept."""
    if isinstance(error, MessageFailure):
        return error
    if is_environment_error(error):
        raise error
    if isinstance(error, RecursionError):
        return DeliveryRefused(
            "The body is nested too deeply to be read.",
            why=str(error)[:_MAX_DETAIL],
            hint="Correct the body and resume the instance, or terminate it.",
        )
    return DeliveryRefused(
        "The message cannot be converted to a row.",
        why=f"{type(error).__name__}: {str(error)[:_MAX_DETAIL]}".rstrip(": "),
        hint="Correct the body and resume the instance, or change the columns of the sink.",
    )


def row_rejection(table: str, why: str) -> DeliveryRefused:
    """Return the failure of a message whose row a table does not accept."""
    hint = "Correct the message or the table, and resume the instance."
    return DeliveryRefused(f"The table {table} rejects the row.", why=why, hint=hint)
