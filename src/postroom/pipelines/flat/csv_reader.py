"""Reads the rows of an interchange with their bytes. After a malformed row the reader continues with the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.documents.disassembled_batch import BatchSize
from postroom.pipelines.documents.line_blocks import read_line_blocks
from postroom.pipelines.documents.node_limit import MAX_NODES
from postroom.pipelines.flat.csv_format import Field, FlatRowFormat

#: The maximum length of a quoted field after its first line. A longer one counts as never closed.
MAX_QUOTED_SPAN = 1 << 20

_MARK = b"\xef\xbb\xbf"
_HINT = "Correct the row and send it again."


class Row(NamedTuple):
    """A row: its bytes, which may be several lines, and its fields or its failure."""

    line: int
    offset: int
    raw: bytes
    fields: list[Field]
    failure: PipelineFailure | None = None


class _Line(NamedTuple):
    number: int
    offset: int
    raw: bytes
    text: str
    #: The decoding error, if there is one. The text has placeholders for the bytes.
    undecodable: UnicodeDecodeError | None


class CsvReader:
    """Reads one interchange.

    A malformed row ends with its first line, even if it has an open quote, because a stray quote must not affect the
    rows after it.
    """

    def __init__(self, body: Body, *, format: FlatRowFormat, size: BatchSize) -> None:
        self._format = format
        self._source = self._read_lines(body, size)
        self._ahead: deque[_Line] = deque()

    def rows(self) -> Iterator[Row]:
        while (row := self.read_row(self._format)) is not None:
            yield row

    def read_row(self, format: FlatRowFormat) -> Row | None:
        """Read the next row in this format, which has the same encoding and line end. Return None at the end."""
        while (line := self._next_line()) is not None:
            if format.strip_end(line.text).strip("\r\n"):
                if format.quote is not None and format.quote in line.text:
                    return self._read_quoted_row(line, format)
                return self._parse_row([line], format)
        return None

    def _read_quoted_row(self, first: _Line, format: FlatRowFormat) -> Row:
        gathered = [first]
        span = 0
        is_open = format.is_open(first.text)
        while is_open and span <= MAX_QUOTED_SPAN and (line := self._next_line()) is not None:
            gathered.append(line)
            span += len(line.raw)
            is_open ^= format.is_open(line.text)
        row = _unclosed_row(first, format) if is_open else self._parse_row(gathered, format)
        if row.raw == first.raw:
            self._ahead.extendleft(reversed(gathered[1:]))
        return row

    def _parse_row(self, lines: list[_Line], format: FlatRowFormat) -> Row:
        first = lines[0]
        text = first.text if len(lines) == 1 else "".join(line.text for line in lines)
        # A field takes at least one byte, so short rows need no count.
        if len(text) > MAX_NODES and (count := format.max_fields(text)) > MAX_NODES:
            return _bad_row(first, b"".join(line.raw for line in lines), _too_many_fields_failure(first, count))
        fields = format.fields(format.strip_end(text))
        if fields is None:
            return _bad_row(first, first.raw, _malformed_failure(first, format))
        raw = first.raw if len(lines) == 1 else b"".join(line.raw for line in lines)
        for line in lines:
            if line.undecodable is not None:
                return _bad_row(first, raw, _encoding_failure(line, line.undecodable, format))
        return Row(line=first.number, offset=first.offset, raw=raw, fields=fields)

    def _next_line(self) -> _Line | None:
        return self._ahead.popleft() if self._ahead else next(self._source, None)

    def _read_lines(self, body: Body, size: BatchSize) -> Iterator[_Line]:
        encoding, line_end = self._format.encoding, self._format.end
        for block in read_line_blocks(body, size, end=line_end):
            offset = block.offset
            for number, line in enumerate(block.lines, block.first_line):
                start, end = offset, offset + len(line)
                raw = line + line_end if end < body.size else line
                offset += len(raw)
                if start == 0 and raw.startswith(_MARK):
                    raw = raw.removeprefix(_MARK)
                    start = len(_MARK)
                try:
                    yield _Line(number, start, raw, raw.decode(encoding), None)
                except UnicodeDecodeError as error:
                    # Placeholders keep delimiters and quotes readable, so that the end of the row is found.
                    yield _Line(number, start, raw, raw.decode(encoding, "surrogateescape"), error)


def _unclosed_row(line: _Line, format: FlatRowFormat) -> Row:
    failure = PipelineFailure(
        f"Line {line.number}: a quote is opened and never closed.",
        why=f"A field that starts with {format.quote} must end with one.",
        hint=_HINT,
    )
    return _bad_row(line, line.raw, failure)


def _malformed_failure(line: _Line, format: FlatRowFormat) -> PipelineFailure:
    if format.quote is None or format.quote not in line.text:
        return PipelineFailure(
            f"Line {line.number}: there is a carriage return inside the row.",
            why="Lines end with LF or CR LF, and a line end inside a field needs quotes around the field.",
            hint="Send the interchange with LF or CR LF as its line ends.",
        )
    return PipelineFailure(
        f"Line {line.number}: a quote is at a position where it is not allowed.",
        why=f"Only a whole field can be quoted, and a {format.quote} inside it is doubled.",
        hint=f"{_HINT} If quotes have no meaning in this format, set quote=None.",
    )


def _too_many_fields_failure(line: _Line, count: int) -> PipelineFailure:
    return PipelineFailure(
        f"Line {line.number}: the row has about {count:,} fields, which is more than a pipeline can read.",
        why=f"The maximum is {MAX_NODES:,}, because all fields are buffered in memory.",
        hint=_HINT,
    )


def _encoding_failure(line: _Line, error: UnicodeDecodeError, format: FlatRowFormat) -> PipelineFailure:
    return PipelineFailure(
        f"Line {line.number}: byte {error.start + 1} is not {format.encoding}.",
        why=f"The byte 0x{line.raw[error.start]:02x} is not valid at this position.",
        hint="Send the interchange in the encoding of the pipeline, or correct the encoding of the pipeline.",
    )


def _bad_row(line: _Line, raw: bytes, failure: PipelineFailure) -> Row:
    return Row(line=line.number, offset=line.offset, raw=raw, fields=[], failure=failure)
