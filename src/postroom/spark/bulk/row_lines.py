"""Find the lines of rows in their file: the bytes as they are there, and the number of the line.

The lines of a split are found as Spark's readers do it. The rule is Hadoop's: a split starts with the first line that
starts after the start of the split, because the split before reads the line across its end completely. Only the first
split starts with the first byte.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from postroom.pipelines import Rows
from postroom.pipelines.rows.batch import BAD, BODY, UNDECODED, SourceLine, find_rows_with_value
from postroom.spark.bulk.read_plan import FILE

#: The characters that Java trims.
_BLANK = bytes(range(33))
#: A truncated compressed file raises EOFError, and a corrupt one zlib.error.
READ_ERRORS = (OSError, EOFError, zlib.error)
_BLOCK = 1 << 20
_ANY_LINE_END = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: The suffixes that Hadoop treats as compressed, and the functions that open such files.
_COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".deflate": None, ".snappy": None, ".lz4": None, ".zst": None}
_REPLACED = "\ufffd"


class RowLines:
    """The lines of a split by the numbers of their rows, from 1. Nothing is read before the first search.

    It reads forward, and keeps the lines of the last two batches: a batch is published after the next one was read."""

    def __init__(self, encoding: TextEncoding, path: Path, start: int, length: int) -> None:
        self.encoding = encoding
        self._path = path
        self._start = start
        has_lines = encoding.has_lines and can_find_lines(path)
        self._rows = encoding.rows(path, start, length) if has_lines else None
        self._last = 0
        self._kept: dict[int, tuple[int, bytes]] = {}
        self._batches = (1, 1)

    def start_batch(self, first: int) -> None:
        """Start with the next batch, whose first row has the number ``first``."""
        self._batches = self._batches[1], first
        for number in [number for number in self._kept if number < self._batches[0]]:
            del self._kept[number]

    def find(self, number: int) -> SourceLine | None:
        """Return the line of a row, or None if the rows of the file are not lines."""
        while self._rows is not None and self._last < number:
            try:
                line = next(self._rows)
            except (StopIteration, *READ_ERRORS):
                self.close()
                break
            self._last += 1
            if self._last >= self._batches[0]:
                self._kept[self._last] = line
        found = self._kept.get(number)
        return None if found is None else self._to_line(*found)

    def close(self) -> None:
        """Find nothing any more: the lines are not those of the rows."""
        self._rows = None
        self._kept.clear()

    @cached_property
    def can_decode_file(self) -> bool:
        """True if the whole file can be decoded."""
        return self.encoding.can_decode_file(self._path)

    def _to_line(self, index: int, data: bytes) -> SourceLine | None:
        is_text = self.encoding.can_decode(data)
        if is_text is None:
            return None
        text = data.decode(self.encoding.name) if is_text else None
        counter = _get_line_counter(self._path, self.encoding.separator)
        return SourceLine(number=counter.count(self._start) + index + 1, data=data, text=text)


class _LineCounter:
    """Counts the lines before a split. The splits of a file come mostly in order, so a worker reads the file once."""

    def __init__(self, path: Path, separator: bytes | None) -> None:
        self._path = path
        self._separator = separator
        self._position = self._count = 0

    def count(self, position: int) -> int:
        """Return the number of lines that end before a position."""
        if position < self._position:
            self._position = self._count = 0
        if position > self._position:
            self._count += count_line_ends(self._path, self._position, position, self._separator)
            self._position = position
        return self._count


@lru_cache(maxsize=4)
def _get_line_counter(path: Path, separator: bytes | None) -> _LineCounter:
    return _LineCounter(path, separator)


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
    has_arrays: bool = False
    """True if a line can be an array of rows."""

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
                is_json = format == "json"
                return cls(
                    name=encoding or "UTF-8",
                    reader_reports=encoding is None or (is_json and not is_one_row),
                    has_lines=is_json and has_line_rows,
                    separator=separator or None,
                    has_arrays=is_json and has_line_rows,
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

    def rows(self, path: Path, start: int, length: int) -> Iterator[tuple[int, bytes]]:
        """Yield the line of each row of a split, with its index in the split."""
        header = self.has_header and start == 0
        for index, line in read_split_lines(path, start, length, self.separator):
            if self.has_blank_rows or (line.strip(_BLANK) and not (self.comment and line.startswith(self.comment))):
                if not header:
                    for _ in range(_count_elements(line) if self.has_arrays else 1):
                        yield index, line
                header = False

    def can_decode_file(self, path: Path) -> bool:
        """Return True if the whole file can be decoded. Return False also if Python cannot read it."""
        with suppress(LookupError, UnicodeDecodeError, *READ_ERRORS), open_decompressed(path) as stream:
            decoder = codecs.getincrementaldecoder(self.name)()
            while block := stream.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
            return True
        return False


def _count_elements(line: bytes) -> int:
    """Return the number of rows of a line of a JSON file."""
    if not line.lstrip(_BLANK).startswith(b"["):
        return 1
    try:
        return len(json.loads(line))
    except ValueError:
        return 1


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file, decompressed as Spark does it. Raise OSError if Python cannot decompress it."""
    if path.suffix not in _COMPRESSED:
        return path.open("rb")
    open_function = _COMPRESSED[path.suffix]
    if open_function is None:
        raise OSError(f"{path.suffix} cannot be decompressed")
    return open_function(path, "rb")  # type: ignore[return-value]


def can_find_lines(path: Path) -> bool:
    """Return True if the lines of a split can be found: its start is a position in the content, or it is the file."""
    return path.suffix == ".gz" or path.suffix not in _COMPRESSED


def read_split_lines(path: Path, start: int, length: int, separator: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Yield the lines without their ends, each with its index after the start of the split. ``separator`` is one byte,
    or None for every kind of line end. Raise OSError, EOFError or zlib.error."""
    with open_decompressed(path) as stream:
        if path.suffix in _COMPRESSED:
            start, length = 0, 1 << 62  # the file is one split, and Spark reports its compressed length
        stream.seek(start)
        for index, (position, line) in enumerate(_read_lines(stream, separator)):
            if position > length:
                return
            if start == 0 and position == 0:
                yield index, line.removeprefix(_BYTE_ORDER_MARK)
            elif start == 0 or position > 0:
                yield index, line


def count_line_ends(path: Path, start: int, end: int, separator: bytes | None) -> int:
    """Return the number of line ends between two positions. A carriage return at ``end`` - 1 counts only if no line
    feed follows it."""
    count = 0
    with path.open("rb") as stream:
        stream.seek(start)
        while start < end and (block := stream.read(min(_BLOCK, end - start))):
            start += len(block)
            if separator is not None:
                count += block.count(separator)
                continue
            count += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
            if block.endswith(b"\r") and stream.read(1) == b"\n":
                count -= 1  # the line feed is counted with the next block
            stream.seek(start)
    return count


def _read_lines(stream: IO[bytes], separator: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its position."""
    line_end = _ANY_LINE_END if separator is None else re.compile(re.escape(separator))
    position, rest = 0, b""
    while block := stream.read(_BLOCK):
        rest += block
        start_of_line = 0
        for found in line_end.finditer(rest):
            if found.end() == len(rest) and found[0] == b"\r" and separator is None:
                break  # the line feed may be in the next block
            yield position + start_of_line, rest[start_of_line : found.start()]
            start_of_line = found.end()
        position, rest = position + start_of_line, rest[start_of_line:]
    if rest:
        yield position, rest.removesuffix(b"\r") if separator is None else rest


def mark_undecoded(lines: RowLines, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a split. Rows with replaced bytes are marked as ``UNDECODED``.

    Most readers replace invalid bytes by U+FFFD without an error. So rows with that character are read again from the
    bytes of the file. A row that really contains the character is valid. A row with replaced bytes is bad, and its
    original bytes are kept. Rows without the character only cost the search for it."""
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
