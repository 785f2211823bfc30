"""Writes the rows of a publish with COPY: parts, fragments, spool, queues, references.

Rows are encoded in PostgreSQL's binary COPY format. NumPy encodes columns of fixed width (ids, numbers, flags) for a
whole batch at once. Columns of variable width (bodies, contexts, texts) are joined row by row.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter
from psycopg.generators import copy_to

from postroom.message import FRAGMENT_SIZE, Body, Message, Part, split_into_fragments
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import Cause, QueueTask

_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_COUNT, _LENGTH, _ARRAY = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">iiIii")
_NULL = _LENGTH.pack(-1)
_TRUE, _FALSE = _LENGTH.pack(1) + b"\1", _LENGTH.pack(1) + b"\0"

#: NumPy types of the fixed-width columns.
UUID, BIGINT, INTEGER, SMALLINT, BOOLEAN = "V16", ">i8", ">i4", ">i2", "u1"

#: The size of the buffers that are sent to the server.
_BUFFER_SIZE = 1 << 18

#: A column's NumPy type and its values: an array, or one value for every row.
Column = tuple[str, npt.ArrayLike]

#: ``only_reference`` is true if the row itself counts the one reference that the message has (ADR 0011).
SPOOL = ("message_id", "part_ids", "body_part_id", "body_part_name", "only_reference", "context")
#: Only trusted logins may write these.
ORIGINATOR = ("originator_sid", "originator_pid")
#: The originator of a message. Only trusted logins may set it.
StoredOriginator = tuple[str | None, str | None]
PARTS = ("part_id", "name", "content_type", "charset", "size", "only_reference", "body")
_START_OF_PART = _COUNT.pack(len(PARTS)) + _LENGTH.pack(16)
QUEUE = ("host_id", "message_id", "subscription_id", "service_class", "service_id", "instance_id", "priority")
SUSPENDED = (
    "host_id",
    "message_id",
    "subscription_id",
    "service_class",
    "service_id",
    "instance_id",
    "priority",
    "task",
    "resumable",
    "cause",
    "error_code",
    "error_description",
    "adapter",
    "uri",
    "related_instance_id",
    "last_related_instance_id",
    "group_id",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedRow:
    """A row for a host's suspended queue."""

    message_id: uuid.UUID
    instance_id: uuid.UUID
    host_id: int
    service_class: ServiceClass
    service_id: uuid.UUID | None
    task: QueueTask
    cause: Cause
    error_code: str
    error_description: str
    subscription_id: int | None = None
    priority: int = 5
    resumable: bool = True
    adapter: str | None = None
    uri: str | None = None
    related_instance_id: uuid.UUID | None = None
    last_related_instance_id: uuid.UUID | None = None
    group_id: uuid.UUID | None = None


def write_messages(
    connection: Connection,
    messages: Sequence[tuple[Message, str]],
    *,
    originators: Sequence[StoredOriginator | None] = (),
    with_fragments: bool = True,
    only_references: Sequence[bool] = (),
) -> None:
    """Write the spool rows and all parts of messages with their stored contexts.

    Large parts are written in fragments, unless the fragments exist already. Only trusted logins may set originators.
    ``only_references`` has a value for each message: whether its row counts its only reference. The rows of its parts
    do the same, except of large ones.
    """
    single = only_references or [False] * len(messages)
    parts = [
        (part, is_single and not is_in_fragments(part))
        for (message, _), is_single in zip(messages, single, strict=True)
        for part in message.parts
    ]
    if parts:
        copy_rows(connection, "parts", PARTS, (_encode_part(*part) for part in parts))
    for part, _ in parts:
        if is_in_fragments(part) and with_fragments:
            write_fragments(connection, part.part_id, part.body)
    if any(originators):
        triples = zip(messages, single, originators, strict=True)
        rows = (
            _encode_spool_row(*message, is_single, originator or (None, None))
            for message, is_single, originator in triples
        )
        copy_rows(connection, "spool", (*SPOOL, *ORIGINATOR), rows)
    else:
        pairs = zip(messages, single, strict=True)
        copy_rows(connection, "spool", SPOOL, (_encode_spool_row(*message, is_single) for message, is_single in pairs))


def is_in_fragments(part: Part) -> bool:
    """Return whether the content of the part is stored in fragments."""
    return part.body.size > FRAGMENT_SIZE


def write_part(connection: Connection, part: Part) -> None:
    """Write one part. A content above the fragment size is streamed into fragments."""
    copy_rows(connection, "parts", PARTS, [_encode_part(part)])
    if is_in_fragments(part):
        write_fragments(connection, part.part_id, part.body)


def _encode_part(part: Part, only_reference: bool = False) -> bytes:
    size = part.body.size
    return _START_OF_PART + b"".join(
        (
            part.part_id.bytes,
            _encode_description(part.name, part.content_type, part.charset),
            _encode_field(size.to_bytes(8, "big")),
            _TRUE if only_reference else _FALSE,
            _encode_field(None if size > FRAGMENT_SIZE else part.data),
        )
    )


@lru_cache(maxsize=256)
def _encode_description(name: str, content_type: str, charset: str | None) -> bytes:
    """Return the fields of a part that are the same for most parts of a batch."""
    texts = (name.encode(), content_type.encode(), charset.encode() if charset else None)
    return b"".join(map(_encode_field, texts))


def _encode_spool_row(
    message: Message, context: str, only_reference: bool, originator: Sequence[str | None] = ()
) -> bytes:
    body = message.body
    return encode_row(
        message.message_id.bytes,
        encode_uuid_array([part.part_id.bytes for part in message.parts]),
        body.part_id.bytes if body else None,
        body.name.encode() if body else None,
        only_reference.to_bytes(1, "big"),
        encode_jsonb(context),
        *map(_encode_text, originator),
    )


def write_fragments(connection: Connection, part_id: uuid.UUID, body: Body) -> None:
    """Stream the content of a part into fragments."""
    copy_rows(connection, "fragments", ("part_id", "number", "body"), _encode_fragments(part_id.bytes, body))


def _encode_fragments(part_id: bytes, body: Body) -> Iterator[bytes]:
    for number, fragment in enumerate(split_into_fragments(body.chunks())):
        yield encode_row(part_id, number.to_bytes(4, "big"), fragment)


def write_parts(connection: Connection, columns: Sequence[Column], bodies: Sequence[bytes]) -> None:
    """Write many parts with content in memory. The columns are part_id, name, content_type, size and only_reference."""
    names = ("part_id", "name", "content_type", "size", "only_reference", "body")
    copy_rows(connection, "parts", names, encode_rows_with_tail(columns, bodies))


def write_spool(
    connection: Connection,
    ids: Column,
    part_ids: Column,
    name: Column,
    only_reference: Column,
    contexts: Sequence[bytes],
) -> None:
    """Write many messages of one part each. The contexts are encoded jsonb fields."""
    arrays = np.empty(len(contexts), dtype=[("head", "V24"), ("id", "V16")])
    arrays["head"] = np.void(encode_uuid_array([b"\0" * 16])[:-16])
    arrays["id"] = part_ids[1]
    columns = [ids, ("V40", arrays.view("V40")), part_ids, name, only_reference]
    copy_rows(connection, "spool", SPOOL, encode_rows_with_tail(columns, contexts))


#: Message id, the ids of its parts in order, id and name of its body part, whether the row counts the only reference,
#: and the context as an encoded jsonb field.
SpoolRow = tuple[bytes, Sequence[bytes], bytes, str, bool, bytes]


def write_spool_rows(
    connection: Connection, rows: Iterable[SpoolRow], *, originators: Sequence[StoredOriginator] | None = None
) -> None:
    """Write many messages with any number of parts, row by row. Only trusted logins may set originators."""
    encoded = (
        (message_id, encode_uuid_array(part_ids), body_id, name.encode(), only_reference.to_bytes(1, "big"), context)
        for message_id, part_ids, body_id, name, only_reference, context in rows
    )
    if originators is None:
        copy_rows(connection, "spool", SPOOL, (encode_row(*fields) for fields in encoded))
        return
    pairs = zip(encoded, originators, strict=True)
    copy_rows(
        connection,
        "spool",
        (*SPOOL, *ORIGINATOR),
        (encode_row(*fields, *map(_encode_text, originator)) for fields, originator in pairs),
    )


def write_work_queue(connection: Connection, host: str, columns: Sequence[Column], rows: int) -> None:
    """Write rows into a host's work queue. Columns for ``task`` and ``for_host_instance`` may follow those of QUEUE.
    Without them the task is DELIVER, and any host instance claims the rows."""
    names = (*QUEUE, "task", "for_host_instance")[: len(columns)]
    copy_rows(connection, f"{host}_q", names, [encode_fixed_rows(columns, rows)])


def write_suspended(connection: Connection, host: str, rows: Iterable[SuspendedRow]) -> None:
    """Write references to a host's suspended queue."""
    copy_rows(connection, f"{host}_q_suspended", SUSPENDED, map(_encode_suspended_row, rows))


def _encode_text(value: str | None) -> bytes | None:
    return None if value is None else value.replace("\0", "\\0").encode("utf-8", "replace")


def _encode_suspended_row(row: SuspendedRow) -> bytes:
    return encode_row(
        row.host_id.to_bytes(2, "big"),
        row.message_id.bytes,
        None if row.subscription_id is None else row.subscription_id.to_bytes(8, "big"),
        row.service_class.encode(),
        None if row.service_id is None else row.service_id.bytes,
        row.instance_id.bytes,
        row.priority.to_bytes(2, "big"),
        row.task.encode(),
        row.resumable.to_bytes(1, "big"),
        row.cause.encode(),
        _encode_text(row.error_code),
        _encode_text(row.error_description),
        _encode_text(row.adapter),
        _encode_text(row.uri),
        None if row.related_instance_id is None else row.related_instance_id.bytes,
        None if row.last_related_instance_id is None else row.last_related_instance_id.bytes,
        None if row.group_id is None else row.group_id.bytes,
    )


def write_references(
    connection: Connection, kind: str, log: int, ids: npt.NDArray[np.void], deltas: npt.NDArray[np.int64]
) -> None:
    """Write reference count deltas of messages or parts (``kind``) to one of the two logs."""
    if len(ids):
        rows = encode_fixed_rows([(UUID, ids), (INTEGER, deltas)], len(ids))
        copy_rows(connection, f"{kind}_ref_count_log_{log}", (f"{kind}_id", "delta"), [rows])


# -- the COPY format --------------------------------------------------------------------------------------------------


def encode_fixed_rows(columns: Sequence[Column], rows: int) -> bytes:
    """Encode rows of fixed-width columns and labels without nulls."""
    table = _lay_out(columns, rows, len(columns))
    kept: npt.NDArray[np.bool_] | None = None
    end = _COUNT.size
    for number, (column_type, _) in enumerate(columns):
        lengths, size = table[f"length{number}"], np.dtype(column_type).itemsize
        start, end = end + _LENGTH.size, end + _LENGTH.size + size
        if (lengths < size).any():  # labels that are shorter than others
            kept = np.ones((rows, table.dtype.itemsize), dtype=bool) if kept is None else kept
            kept[:, start:end] = np.arange(size) < lengths[:, np.newaxis]
    return table.tobytes() if kept is None else table.view("u1").reshape(kept.shape)[kept].tobytes()


def encode_rows_with_tail(columns: Sequence[Column], tails: Sequence[bytes]) -> Iterator[bytes]:
    """Encode rows of fixed-width columns and one last column of variable width. Yield buffers."""
    rows = len(tails)
    lengths = np.fromiter(map(len, tails), dtype=">i4", count=rows)
    head = _lay_out([*columns], rows, len(columns) + 1, tail_lengths=lengths)
    width = head.dtype.itemsize
    heads = head.tobytes()
    per_buffer = max(1, _BUFFER_SIZE * rows // (len(heads) + int(lengths.sum()) + 1))
    for start in range(0, rows, per_buffer):
        pieces: list[bytes] = []
        for number, tail in enumerate(tails[start : start + per_buffer], start):
            pieces += (heads[number * width : (number + 1) * width], tail)
        yield b"".join(pieces)


def encode_constant(text: str) -> Column:
    """Return a text column with the same value in every row."""
    encoded = text.encode()
    return f"V{len(encoded)}", np.void(encoded)


def build_label_column(labels: Sequence[str], places: npt.NDArray[np.int64]) -> Column:
    """Return the column of an enumeration, with the label at each of these places."""
    values = np.array(labels, dtype="S")[places]
    return values.dtype.str, values


def _lay_out(
    columns: Sequence[Column], rows: int, fields: int, *, tail_lengths: npt.NDArray[np.int32] | None = None
) -> npt.NDArray[np.void]:
    layout: list[tuple[str, str]] = [("fields", ">i2")]
    for number, (column_type, _) in enumerate(columns):
        layout += [(f"length{number}", ">i4"), (f"value{number}", column_type)]
    if tail_lengths is not None:
        layout.append(("tail", ">i4"))
    table = np.empty(rows, dtype=np.dtype(layout))
    table["fields"] = fields
    for number, (column_type, values) in enumerate(columns):
        table[f"value{number}"] = values
        has_labels = np.dtype(column_type).kind == "S"
        table[f"length{number}"] = (
            np.char.str_len(table[f"value{number}"]) if has_labels else np.dtype(column_type).itemsize
        )
    if tail_lengths is not None:
        table["tail"] = tail_lengths
    return table


def encode_row(*fields: bytes | None) -> bytes:
    """Encode one row of encoded fields. None is null."""
    return _COUNT.pack(len(fields)) + b"".join(map(_encode_field, fields))


def _encode_field(field: bytes | None) -> bytes:
    return _NULL if field is None else _LENGTH.pack(len(field)) + field


def encode_jsonb(text: str) -> bytes:
    """Encode a jsonb field: its format version, then the text."""
    return b"\x01" + text.encode()


def encode_uuid_array(ids: Sequence[bytes]) -> bytes:
    """Encode a uuid[] field of one dimension."""
    if not ids:
        return struct.pack(">iiI", 0, 0, 2950)
    length = _LENGTH.pack(16)
    return _ARRAY.pack(1, 0, 2950, len(ids), 1) + length + length.join(ids)


class _FlushingWriter(LibpqWriter):
    """Waits until the server has received each buffer.

    The driver's own writer passes buffers to libpq, which stores what a slow server has not received yet: up to the
    whole of a large body, which it moves in memory with every buffer that it sends.
    """

    def write(self, data: Buffer) -> None:
        self.connection.wait(copy_to(self._pgconn, data, flush=True))


def copy_rows(connection: Connection, table: str, columns: Sequence[str], rows: Iterable[bytes]) -> None:
    """COPY encoded rows (or buffers of many rows) into a table."""
    with connection.cursor() as cursor:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)"
        with cursor.copy(statement, writer=_FlushingWriter(cursor)) as copy:
            pieces = [_HEADER]
            size = 0
            for encoded in rows:
                pieces.append(encoded)
                size += len(encoded)
                if size >= _BUFFER_SIZE:
                    copy.write(b"".join(pieces))
                    pieces, size = [], 0
            pieces.append(_TRAILER)
            copy.write(b"".join(pieces))
