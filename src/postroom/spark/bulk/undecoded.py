"""Rows that Spark's reader has read with characters destroyed, found again and told.

Where bytes are no characters in the encoding of a file, most readers put U+FFFD and say nothing. So rows with that
character are looked at again, in the bytes of the file: a row that really has it passes, one that was destroyed is bad,
and its own bytes are what is kept of it. Rows without it cost no more than the search.
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
from postroom.pipelines.rows.batch import BAD, BODY, UNDECODED, rows_with
from postroom.spark.bulk.reading import FILE
from postroom.spark.bulk.split_lines import can_be_cut, lines_of_split, open_plain

_REPLACED = "\ufffd"
_BLOCK = 1 << 20
#: What Java trims.
_BLANK = bytes(range(33))
#: A compressed file that is cut short raises the second, and one that is broken the third.
_CANNOT_BE_READ = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class TextEncoding:
    """How the text of files is read."""

    name: str = "UTF-8"
    reader_tells: bool = False
    """Whether the reader takes what it cannot decode for a bad row by itself."""
    has_lines: bool = False
    """Whether every row is a line; some lines may be none."""
    separator: bytes | None = None
    has_header: bool = False
    comment: bytes = b""
    has_blank_rows: bool = False

    @classmethod
    def of(cls, format: str, options: Mapping[str, str], pipeline: Rows) -> TextEncoding | None:
        """None where nothing is decoded: the bytes pass as they are."""
        given = {name.lower(): value for name, value in options.items()}
        encoding = given.get("encoding") or given.get("charset")
        separator = given.get("linesep", "").encode()
        whole = "true" in (given.get("multiline", "").lower(), given.get("wholetext", "").lower())
        can_be_lines = (
            not whole and len(separator) < 2 and not (encoding or "").lower().startswith(("utf-16", "utf-32"))
        )
        match format:
            case "csv":
                return cls(
                    name=encoding or "UTF-8",
                    has_lines=can_be_lines,
                    separator=separator or None,
                    has_header=given.get("header", "").lower() == "true",
                    comment=given.get("comment", "").encode(),
                )
            case "json" | "xml":
                return cls(name=encoding or "UTF-8", reader_tells=encoding is None or (format == "json" and not whole))
            case "text" if pipeline.column is None:
                return cls(has_lines=can_be_lines, separator=separator or None, has_blank_rows=True)
        return None

    def decodes(self, data: bytes) -> bool | None:
        """None if nobody here knows the encoding."""
        try:
            data.decode(self.name)
        except UnicodeDecodeError:
            return False
        except LookupError:
            return None
        return True

    def rows(self, path: Path, start: int, length: int) -> Iterator[bytes]:
        """The bytes of each row of a split."""
        header = self.has_header and start == 0
        for line in lines_of_split(path, start, length, self.separator):
            if self.has_blank_rows or (line.strip(_BLANK) and not (self.comment and line.startswith(self.comment))):
                if not header:
                    yield line
                header = False

    def decodes_file(self, path: Path) -> bool:
        """Whether all of a file can be decoded; false too where that cannot be tried here."""
        with suppress(LookupError, UnicodeDecodeError, *_CANNOT_BE_READ), open_plain(path) as stream:
            decoder = codecs.getincrementaldecoder(self.name)()
            while block := stream.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
            return True
        return False


def with_undecoded(
    encoding: TextEncoding, path: Path, start: int, length: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches of a split, all of its rows, with those marked as ``UNDECODED`` whose characters were destroyed."""
    finder = _Finder(encoding, path, start, length)
    first = 0
    for batch in batches:
        destroyed = _destroyed(encoding, finder, first, batch)
        first += batch.num_rows
        yield _marked(encoding, batch, destroyed) if destroyed else batch


def _destroyed(encoding: TextEncoding, finder: _Finder, first: int, batch: pa.RecordBatch) -> dict[int, bytes | None]:
    """The rows, by their place in the batch, with their own bytes where these are found."""
    found: dict[int, bytes | None] = {}
    if encoding.reader_tells:
        for row in rows_with(batch, BAD):
            data = batch[BAD][row].as_py()
            if encoding.decodes(data) is False:
                found[row] = data
        return found
    for row in _with_replaced(batch):
        data, is_destroyed = finder.look(first + row)
        if is_destroyed:
            found[row] = data
    return found


def _with_replaced(batch: pa.RecordBatch) -> list[int]:
    """The rows that have U+FFFD anywhere."""
    rows = np.zeros(batch.num_rows, dtype=bool)
    for name in batch.schema.names:
        kind = batch[name].type
        is_text = name in (BODY, BAD) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_text and name != FILE and _may_have_replaced(batch[name]):
            has = pc.match_substring(batch[name].cast(pa.binary()), _REPLACED)
            rows |= pc.fill_null(has, False).to_numpy(zero_copy_only=False)
    found: list[int] = np.flatnonzero(rows).tolist()
    return found


def _may_have_replaced(column: pa.Array) -> bool:
    """Hardly ever; and to search all values as one takes a fifth of the time."""
    return any(data is not None and _REPLACED.encode() in data.to_pybytes() for data in column.buffers()[2:])


def _marked(encoding: TextEncoding, batch: pa.RecordBatch, destroyed: Mapping[int, bytes | None]) -> pa.RecordBatch:
    rows = range(batch.num_rows)
    bad = batch[BAD].to_pylist() if BAD in batch.schema.names else [None] * batch.num_rows
    columns = {name: batch[name] for name in batch.schema.names}
    columns[BAD] = pa.array([destroyed.get(row, bad[row]) for row in rows], pa.binary())
    columns[UNDECODED] = pa.array([encoding.name if row in destroyed else None for row in rows], pa.string())
    return pa.RecordBatch.from_pydict(columns)


class _Finder:
    """Looks at rows of a split in its file, one after the other: it only goes forward."""

    def __init__(self, encoding: TextEncoding, path: Path, start: int, length: int) -> None:
        self._encoding = encoding
        self._path = path
        self._rows = encoding.rows(path, start, length) if encoding.has_lines and can_be_cut(path) else None
        self._next = 0
        self._file_decodes: bool | None = None

    def look(self, number: int) -> tuple[bytes | None, bool]:
        """The bytes of a row with U+FFFD, if they are found, and whether characters of it were destroyed."""
        line = self._line(number)
        if line is not None:
            decodes = self._encoding.decodes(line)
            if decodes is False:
                return line, True
            if decodes and _REPLACED in line.decode(self._encoding.name):
                return line, False
            self._rows = None  # these are not the lines that Spark has read
        if self._file_decodes is None:
            self._file_decodes = self._encoding.decodes_file(self._path)
        return None, not self._file_decodes

    def _line(self, number: int) -> bytes | None:
        if self._rows is None:
            return None
        try:
            for line in self._rows:
                self._next += 1
                if self._next > number:
                    return line
        except _CANNOT_BE_READ:
            pass
        self._rows = None
        return None
