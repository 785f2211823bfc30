"""The rows of an interchange with their own bytes, and where a malformed one ends so that the next can be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.documents.disassembled_batch import BatchSize
from postroom.pipelines.documents.line_blocks import line_blocks
from postroom.pipelines.documents.node_limit import MAX_NODES
from postroom.pipelines.flat.csv_format import Field, RowFormat

#: How far a quoted field may run over line ends before its quote counts as never closed.
MAX_QUOTED_SPAN = 1 << 20

_MARK = b"\xef\xbb\xbf"
_HINT = "Correct the row and send it again."


class Row(NamedTuple):
    """One row: the lines that it takes up, as they came, and its fields or why it has none."""

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
    #: The bytes that the encoding does not know, as an error; the text has stand-ins for them.
    undecodable: UnicodeDecodeError | None


class CsvReader:
    """Reads one interchange.

    A row that is malformed ends with its first line, whatever its quotes say: a single stray quote must not swallow the
    rows after it.
    """

    def __init__(self, body: Body, *, format: RowFormat, size: BatchSize) -> None:
        self._format = format
        self._source = self._read_lines(body, size)
        self._ahead: deque[_Line] = deque()

    def rows(self) -> Iterator[Row]:
        while (row := self.row(self._format)) is not None:
            yield row

    def row(self, format: RowFormat) -> Row | None:
        """The next row, if it is written in this format, which has the same encoding and line end."""
        while (line := self._take()) is not None:
            if format.bare(line.text).strip("\r\n"):
                if format.quote is not None and format.quote in line.text:
                    return self._quoted_row(line, format)
                return self._row([line], format)
        return None

    def _quoted_row(self, first: _Line, format: RowFormat) -> Row:
        gathered = [first]
        span = 0
        is_open = format.is_open(first.text)
        while is_open and span <= MAX_QUOTED_SPAN and (line := self._take()) is not None:
            gathered.append(line)
            span += len(line.raw)
            is_open ^= format.is_open(line.text)
        row = _unclosed(first, format) if is_open else self._row(gathered, format)
        if row.raw == first.raw:
            self._ahead.extendleft(reversed(gathered[1:]))
        return row

    def _row(self, lines: list[_Line], format: RowFormat) -> Row:
        first = lines[0]
        text = first.text if len(lines) == 1 else "".join(line.text for line in lines)
        # A field takes a byte at least, so that short rows need not be looked at.
        if len(text) > MAX_NODES and (most := format.most_fields(text)) > MAX_NODES:
            return _bad(first, b"".join(line.raw for line in lines), _too_many_fields(first, most))
        fields = format.fields(format.bare(text))
        if fields is None:
            return _bad(first, first.raw, _malformed(first, format))
        raw = first.raw if len(lines) == 1 else b"".join(line.raw for line in lines)
        for line in lines:
            if line.undecodable is not None:
                return _bad(first, raw, _not_in_encoding(line, line.undecodable, format))
        return Row(line=first.number, offset=first.offset, raw=raw, fields=fields)

    def _take(self) -> _Line | None:
        return self._ahead.popleft() if self._ahead else next(self._source, None)

    def _read_lines(self, body: Body, size: BatchSize) -> Iterator[_Line]:
        encoding, line_end = self._format.encoding, self._format.end
        for block in line_blocks(body, size, end=line_end):
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
                    # Stand-ins keep delimiters and quotes readable, so that the row ends where it ends.
                    yield _Line(number, start, raw, raw.decode(encoding, "surrogateescape"), error)


def _unclosed(line: _Line, format: RowFormat) -> Row:
    failure = PipelineFailure(
        f"Line {line.number}: a quote is opened and never closed.",
        why=f"A field that starts with {format.quote} must end with one.",
        hint=_HINT,
    )
    return _bad(line, line.raw, failure)


def _malformed(line: _Line, format: RowFormat) -> PipelineFailure:
    if format.quote is None or format.quote not in line.text:
        return PipelineFailure(
            f"Line {line.number}: there is a carriage return inside the row.",
            why="Lines end with LF or CR LF, and a line end inside a field needs quotes around the field.",
            hint="Send the interchange with LF or CR LF as its line ends.",
        )
    return PipelineFailure(
        f"Line {line.number}: a quote stands where it may not.",
        why=f"Only a whole field can be quoted, and a {format.quote} inside it is doubled.",
        hint=f"{_HINT} If quotes mean nothing in this format, define it with quote=None.",
    )


def _too_many_fields(line: _Line, most: int) -> PipelineFailure:
    return PipelineFailure(
        f"Line {line.number}: the row has about {most:,} fields, more than a pipeline reads into.",
        why=f"There may be {MAX_NODES:,}, because all of them are held in memory.",
        hint=_HINT,
    )


def _not_in_encoding(line: _Line, error: UnicodeDecodeError, format: RowFormat) -> PipelineFailure:
    return PipelineFailure(
        f"Line {line.number}: byte {error.start + 1} is not {format.encoding}.",
        why=f"The byte 0x{line.raw[error.start]:02x} does not belong there.",
        hint="Send the interchange in the encoding of the pipeline, or define the pipeline with its encoding.",
    )


def _bad(line: _Line, raw: bytes, failure: PipelineFailure) -> Row:
    return Row(line=line.number, offset=line.offset, raw=raw, fields=[], failure=failure)
