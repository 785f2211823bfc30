"""Convert the messages of a batch to the rows of a sink, with Arrow. All kinds of sinks use the same rows.

A message that cannot be converted is returned with its failure, and does not affect the other messages.

Most messages are simple: their body is UTF-8 and the port has no map. Nothing but the values of the columns is decoded
of their contexts, and Arrow converts each column as a whole (``convert_rows``). This takes a fifth of the time of
``RowFormat.convert``, which converts all other messages and decides why a message cannot be converted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pa_json

from postroom.adapters.sink.columns import BODY_COLUMN, FIXED_COLUMNS, SinkColumn
from postroom.adapters.sink.definition import Body
from postroom.errors import BadValue, DeliveryRefused, MessageFailure, is_environment_error
from postroom.message import Message
from postroom.messagebox.sinks.sink_batches import SinkRows
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
#: The originator of a message is not stored in its context.
_NOT_IN_CONTEXT = frozenset({BTS.OriginatorSID.key, BTS.OriginatorPID.key})
#: PostgreSQL counts microseconds from the year 2000, and Arrow from 1970.
_YEAR_2000 = 946_684_800_000_000
#: Fewer rows are not divided any more to find those that cannot be converted.
_SMALL = 32


@dataclass(frozen=True, kw_only=True)
class RefusedRow:
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

    def convert(self, messages: Sequence[tuple[Message, datetime | None]]) -> tuple[pa.RecordBatch, list[RefusedRow]]:
        """Return the rows of the messages in order, and the messages that cannot be converted."""
        refused: list[RefusedRow] = []
        values: list[_RowValues] = []
        for index, (message, received_at) in enumerate(messages):
            try:
                values.append(self._read_values(index, message, received_at))
            except Exception as error:
                refused.append(RefusedRow(index=index, failure=to_row_failure(error)))
        with suppress(Exception):
            return self._batch(values), refused
        # At least one message makes the conversion fail. Convert each alone to find it.
        batches: list[pa.RecordBatch] = []
        for row in values:
            try:
                batches.append(self._batch([row]))
            except Exception as error:
                refused.append(RefusedRow(index=row.index, failure=to_row_failure(error)))
        combined = pa.concat_batches(batches) if batches else self._batch([])
        return combined, sorted(refused, key=lambda refusal: refusal.index)

    def _read_values(self, index: int, message: Message, received_at: datetime | None) -> _RowValues:
        body = _read_body(message) if self.body != "none" or self.parsed is not None else b""
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
        return _RowValues(index=index, values=row, line=b"" if self.parsed is None else _to_line(body))

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


def _to_line(body: bytes) -> bytes:
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


def has_simple_columns(format: RowFormat) -> bool:
    """Return True if the columns of the format are in stored contexts and bodies."""
    return _NOT_IN_CONTEXT.isdisjoint(column.key for column in format.columns)


def convert_rows(format: RowFormat, rows: SinkRows) -> tuple[list[pa.RecordBatch], list[int]]:
    """Return the rows in order, and the numbers of the messages that could not be converted.

    The latter include good messages next to a bad one."""
    count = len(rows.seqs)
    try:
        return ([_convert(format, rows)] if count else []), []
    except Exception as error:
        if is_environment_error(error):
            raise
        if count <= _SMALL:
            return [], list(rows.seqs)
    half = slice(count // 2), slice(count // 2, None)
    converted = [convert_rows(format, rows.select(itemgetter(part))) for part in half]
    return [batch for batches, _ in converted for batch in batches], [seq for _, failed in converted for seq in failed]


def _convert(format: RowFormat, rows: SinkRows) -> pa.RecordBatch:
    """Return the rows. Raise an exception if one of the messages cannot be converted."""
    bodies = cast(Sequence[bytes], rows.bodies)  # simple messages have one; without bodies they are not used
    keys = (BTS.InterchangeID.key, BTS.MessageType.key, *(column.key for column in format.columns))
    types = (ValueType.STR, ValueType.STR, *(column.value_type for column in format.columns))
    values = _read_values(rows.contexts, keys)
    interchange_ids, message_types, *columns = (
        _to_array(value_type, column) for column, value_type in zip(values, types, strict=True)
    )
    arrays = [pa.array(rows.message_ids, pa.string()), interchange_ids, message_types]
    times = pa.array(np.array(rows.published_at, np.int64) + _YEAR_2000).cast(pa.timestamp("us", tz="UTC"))
    arrays += [times, *columns]
    if format.parsed is not None:
        parsed = read_lines([_to_line(body) for body in bodies], format.parsed)
        arrays += [parsed.column(name).combine_chunks() for name in format.parsed.names]
    if format.body == "binary":
        arrays.append(pa.array(bodies, pa.binary()))
    elif format.body == "text":
        arrays.append(pa.array(bodies, pa.binary()).cast(pa.string()))  # it checks the encoding
    return pa.RecordBatch.from_arrays(arrays, schema=format.schema)


def _read_values(contexts: Sequence[str], keys: Sequence[str]) -> list[list[Any]]:
    """Return for each key the values in the contexts. A promoted value precedes a written one."""
    names, decode = _make_decoder(tuple(dict.fromkeys(keys)))
    decoded = list(map(decode, contexts))
    promoted = list(map(attrgetter("promoted"), decoded))
    found = []
    for key in keys:
        values = list(map(attrgetter(names[key]), promoted))
        if None in values:
            written = map(attrgetter(f"written.{names[key]}"), decoded)
            values = [one if one is not None else other for one, other in zip(values, written, strict=True)]
        found.append(values)
    return found


@lru_cache(maxsize=16)
def _make_decoder(keys: tuple[str, ...]) -> tuple[dict[str, str], Callable[[str], Any]]:
    """Return the attributes of the keys, and a decoder of contexts that skips all other keys."""
    names = {key: f"value_{number}" for number, key in enumerate(keys)}
    fields = [(name, Any, None) for name in names.values()]
    values = msgspec.defstruct("Values", fields, rename={name: key for key, name in names.items()}, gc=False)
    parts = [(name, values, msgspec.field(default_factory=values)) for name in ("promoted", "written")]
    return names, msgspec.json.Decoder(msgspec.defstruct("Stored", parts, gc=False)).decode


def _check_types(values: Sequence[Any], *allowed: type) -> None:
    """Raise TypeError if a value has another type. Arrow would convert some of them."""
    if not set(map(type, values)) <= {*allowed, NoneType}:
        raise TypeError(f"a value is not {allowed}")


def _to_array(value_type: ValueType, values: list[Any]) -> pa.Array:
    """Return the values of a stored context as a column."""
    match value_type:
        case ValueType.DECIMAL:
            _check_types(values, dict, int)
            texts = [None if one is None else one["decimal"] if type(one) is dict else str(one) for one in values]
            return pa.array(texts, pa.string()).cast(ARROW_TYPES[value_type])
        case ValueType.FLOAT:
            values = [None if value is None else float(value["float"]) for value in values]
        case ValueType.DATETIME:
            values = [None if value is None else datetime.fromisoformat(value["datetime"]) for value in values]
        case _:
            _check_types(values, value_type.python_type)
    return pa.array(values, ARROW_TYPES[value_type])
