"""Rows in the text format of PostgreSQL's COPY. Arrow converts each column as a whole."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: A backslash escapes; it is escaped first.
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

# It also encodes the decimals, dates and bytes in lists and structures, which Python's own encoder cannot.
_encode_json = msgspec.json.Encoder(decimal_format="number").encode


def to_copy_text(rows: pa.RecordBatch) -> memoryview:
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
