"""Detect rows in which Spark's reader has replaced bytes that it could not decode.

Most readers replace invalid bytes by U+FFFD without an error. So rows with that character are read again from the bytes
of the file. A row that really contains the character is valid. A row with replaced bytes is bad, and its original bytes
are kept. Rows without the character only cost the search for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroom.pipelines.rows.batch import BAD, BODY, UNDECODED, find_rows_with_value
from postroom.spark.bulk.read_plan import FILE
from postroom.spark.bulk.row_lines import RowLines, TextEncoding

_REPLACED = "\ufffd"


def mark_undecoded(lines: RowLines, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a split. Rows with replaced bytes are marked as ``UNDECODED``."""
    first = 1
    for batch in batches:
        lines.start_batch(first)
        undecoded = _find_undecoded(lines, first, batch)
        first += batch.num_rows
        yield _mark(lines.encoding, batch, undecoded) if undecoded else batch


def _find_undecoded(lines: RowLines, first: int, batch: pa.RecordBatch) -> dict[int, bytes | None]:
    """Return the rows with replaced bytes, by index, with their original bytes or None if these are not found."""
    found: dict[int, bytes | None] = {}
    if lines.encoding.reader_reports:
        for row in find_rows_with_value(batch, BAD):
            data = batch[BAD][row].as_py()
            if lines.encoding.can_decode(data) is False:
                found[row] = data
        return found
    for row in _find_replaced(batch):
        line = lines.find(first + row)
        if line is not None and line.text is None:
            found[row] = line.data
        elif line is not None and _REPLACED not in (line.text or ""):
            lines.close()  # Spark has split the file into other lines
            line = None
        if line is None and not lines.can_decode_file:
            found[row] = None
    return found


def _find_replaced(batch: pa.RecordBatch) -> list[int]:
    """Return the indexes of the rows that contain U+FFFD."""
    rows = np.zeros(batch.num_rows, dtype=bool)
    for name in batch.schema.names:
        kind = batch[name].type
        is_text = name in (BODY, BAD) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_text and name != FILE and _may_contain_replaced(batch[name]):
            has = pc.match_substring(batch[name].cast(pa.binary()), _REPLACED)
            rows |= pc.fill_null(has, False).to_numpy(zero_copy_only=False)
    found: list[int] = np.flatnonzero(rows).tolist()
    return found


def _may_contain_replaced(column: pa.Array) -> bool:
    """Return True if a column may contain U+FFFD. It is rare, and one search in all values takes a fifth of the
    time."""
    return any(data is not None and _REPLACED.encode() in data.to_pybytes() for data in column.buffers()[2:])


def _mark(encoding: TextEncoding, batch: pa.RecordBatch, undecoded: Mapping[int, bytes | None]) -> pa.RecordBatch:
    rows = range(batch.num_rows)
    bad = batch[BAD].to_pylist() if BAD in batch.schema.names else [None] * batch.num_rows
    columns = {name: batch[name] for name in batch.schema.names}
    columns[BAD] = pa.array([undecoded.get(row, bad[row]) for row in rows], pa.binary())
    columns[UNDECODED] = pa.array([encoding.name if row in undecoded else None for row in rows], pa.string())
    return pa.RecordBatch.from_pydict(columns)
