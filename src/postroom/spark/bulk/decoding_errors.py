"""Detect rows in which Spark's reader has replaced bytes that it could not decode.

Most readers replace invalid bytes by U+FFFD without an error. So rows with that character are read again from the bytes
of the file. A row that really contains the character is valid. A row with replaced bytes is bad, and its original bytes
are kept. Rows without the character only cost the search for it.
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroom.pipelines import Rows
from postroom.pipelines.rows.batch import BAD, BODY, UNDECODED, find_rows_with_value
from postroom.spark.bulk.read_plan import FILE
from postroom.spark.bulk.split_lines import can_find_lines, open_decompressed, read_split_lines

_REPLACED = "\ufffd"
_BLOCK = 1 << 20
#: The characters that Java trims.
_BLANK = bytes(range(33))
#: A truncated compressed file raises EOFError, and a corrupt one zlib.error.
_READ_ERRORS = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class TextEncoding:
    """The encoding and the line format of text files."""

    name: str = "UTF-8"
    reader_reports: bool = False
    """True if the reader reports rows that it cannot decode as bad."""
    has_lines: bool = False
    """True if every row is one line. Not every line has to be a row."""
    separator: bytes | None = None
    has_header: bool = False
    comment: bytes = b""
    has_blank_rows: bool = False

    @classmethod
    def from_options(cls, format: str, options: Mapping[str, str], pipeline: Rows) -> TextEncoding | None:
        """Return the encoding of a format, or None if its bytes are not decoded."""
        lower_options = {name.lower(): value for name, value in options.items()}
        encoding = lower_options.get("encoding") or lower_options.get("charset")
        separator = lower_options.get("linesep", "").encode()
        is_one_row = "true" in (lower_options.get("multiline", "").lower(), lower_options.get("wholetext", "").lower())
        has_line_rows = (
            not is_one_row and len(separator) < 2 and not (encoding or "").lower().startswith(("utf-16", "utf-32"))
        )
        match format:
            case "csv":
                return cls(
                    name=encoding or "UTF-8",
                    has_lines=has_line_rows,
                    separator=separator or None,
                    has_header=lower_options.get("header", "").lower() == "true",
                    comment=lower_options.get("comment", "").encode(),
                )
            case "json" | "xml":
                return cls(
                    name=encoding or "UTF-8", reader_reports=encoding is None or (format == "json" and not is_one_row)
                )
            case "text" if pipeline.column is None:
                return cls(has_lines=has_line_rows, separator=separator or None, has_blank_rows=True)
        return None

    def can_decode(self, data: bytes) -> bool | None:
        """Return True if the bytes can be decoded, or None if Python does not know the encoding."""
        try:
            data.decode(self.name)
        except UnicodeDecodeError:
            return False
        except LookupError:
            return None
        return True

    def rows(self, path: Path, start: int, length: int) -> Iterator[bytes]:
        """Yield the bytes of each row of a split."""
        header = self.has_header and start == 0
        for line in read_split_lines(path, start, length, self.separator):
            if self.has_blank_rows or (line.strip(_BLANK) and not (self.comment and line.startswith(self.comment))):
                if not header:
                    yield line
                header = False

    def can_decode_file(self, path: Path) -> bool:
        """Return True if the whole file can be decoded. Return False also if Python cannot read it."""
        with suppress(LookupError, UnicodeDecodeError, *_READ_ERRORS), open_decompressed(path) as stream:
            decoder = codecs.getincrementaldecoder(self.name)()
            while block := stream.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
            return True
        return False


def mark_undecoded(
    encoding: TextEncoding, path: Path, start: int, length: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a split. Rows with replaced bytes are marked as ``UNDECODED``."""
    finder = _RowFinder(encoding, path, start, length)
    first = 0
    for batch in batches:
        undecoded = _find_undecoded(encoding, finder, first, batch)
        first += batch.num_rows
        yield _mark(encoding, batch, undecoded) if undecoded else batch


def _find_undecoded(
    encoding: TextEncoding, finder: _RowFinder, first: int, batch: pa.RecordBatch
) -> dict[int, bytes | None]:
    """Return the rows with replaced bytes, by index, with their original bytes or None if these are not found."""
    found: dict[int, bytes | None] = {}
    if encoding.reader_reports:
        for row in find_rows_with_value(batch, BAD):
            data = batch[BAD][row].as_py()
            if encoding.can_decode(data) is False:
                found[row] = data
        return found
    for row in _find_replaced(batch):
        data, is_undecoded = finder.find(first + row)
        if is_undecoded:
            found[row] = data
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


class _RowFinder:
    """Finds the original bytes of rows of a split. It only reads forward."""

    def __init__(self, encoding: TextEncoding, path: Path, start: int, length: int) -> None:
        self._encoding = encoding
        self._path = path
        self._rows = encoding.rows(path, start, length) if encoding.has_lines and can_find_lines(path) else None
        self._next = 0
        self._can_decode_file: bool | None = None

    def find(self, number: int) -> tuple[bytes | None, bool]:
        """Return the bytes of a row with U+FFFD, or None if they are not found, and True if bytes were replaced."""
        line = self._line(number)
        if line is not None:
            can_decode = self._encoding.can_decode(line)
            if can_decode is False:
                return line, True
            if can_decode and _REPLACED in line.decode(self._encoding.name):
                return line, False
            self._rows = None  # Spark has split the file into other lines
        if self._can_decode_file is None:
            self._can_decode_file = self._encoding.can_decode_file(self._path)
        return None, not self._can_decode_file

    def _line(self, number: int) -> bytes | None:
        if self._rows is None:
            return None
        try:
            for line in self._rows:
                self._next += 1
                if self._next > number:
                    return line
        except _READ_ERRORS:
            pass
        self._rows = None
        return None
