"""Encodes rows in PostgreSQL's binary COPY format.

NumPy encodes columns of fixed width (ids, numbers, flags) for a whole batch at once. Columns of variable width (bodies,
contexts, texts) are joined row by row. Both give bytes for ``COPY ... FROM STDIN (FORMAT binary)``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter
from psycopg.generators import copy_to

from postroom.messagebox.connection import Connection

_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)

#: NumPy types of the fixed-width columns.
UUID, BIGINT, INTEGER, SMALLINT, BOOLEAN = "V16", ">i8", ">i4", ">i2", "u1"

#: The size of the buffers that are sent to the server.
_BUFFER_SIZE = 1 << 18


#: A column's NumPy type and its values: an array, or one value for every row.
Column = tuple[str, npt.ArrayLike]


def encode_fixed_rows(columns: Sequence[Column], rows: int) -> bytes:
    """Encode rows of fixed-width columns without nulls."""
    return _lay_out(columns, rows, len(columns)).tobytes()


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
        table[f"length{number}"] = np.dtype(column_type).itemsize
        table[f"value{number}"] = values
    if tail_lengths is not None:
        table["tail"] = tail_lengths
    return table


def encode_row(*fields: bytes | None) -> bytes:
    """Encode one row of encoded fields. None is null."""
    pieces = [struct.pack(">h", len(fields))]
    for field in fields:
        if field is None:
            pieces.append(_NULL)
        else:
            pieces += (_LENGTH.pack(len(field)), field)
    return b"".join(pieces)


def encode_jsonb(text: str) -> bytes:
    """Encode a jsonb field: its format version, then the text."""
    return b"\x01" + text.encode()


def encode_uuid_array(ids: Sequence[bytes]) -> bytes:
    """Encode a uuid[] field of one dimension."""
    if not ids:
        return struct.pack(">iiI", 0, 0, 2950)
    head = struct.pack(">iiIii", 1, 0, 2950, len(ids), 1)
    return head + b"".join(_LENGTH.pack(16) + id for id in ids)


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
