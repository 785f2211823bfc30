"""The rows of a CSV interchange with their own bytes, and where a malformed one ends so that the next can be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.csv_format import CsvFormat, Field
from postroom.pipelines.disassembled import BatchSize
from postroom.pipelines.lines import line_blocks

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

    def __init__(self, body: Body, *, format: CsvFormat, size: BatchSize) -> None:
        self._format = format
        self._source = self._read_lines(body, size)
        self._ahead: deque[_Line] = deque()

    def rows(self) -> Iterator[Row]:
        quote = self._format.quote
        while (line := self._take()) is not None:
            if not line.text.strip("\r\n"):
                continue
            if quote is not None and quote in line.text:
                yield self._quoted_row(line)
            else:
                yield self._row([line])

    def _quoted_row(self, first: _Line) -> Row:
        gathered = [first]
        span = 0
        is_open = self._format.is_open(first.text)
        while is_open and span <= MAX_QUOTED_SPAN and (line := self._take()) is not None:
            gathered.append(line)
            span += len(line.raw)
            is_open ^= self._format.is_open(line.text)
        row = self._unclosed(first) if is_open else self._row(gathered)
        if row.raw == first.raw:
            self._ahead.extendleft(reversed(gathered[1:]))
        return row

    def _row(self, lines: list[_Line]) -> Row:
        first = lines[0]
        text = first.text if len(lines) == 1 else "".join(line.text for line in lines)
        fields = self._format.fields(text.removesuffix("\n").removesuffix("\r"))
        if fields is None:
            return _bad(first, first.raw, self._malformed(first))
        raw = first.raw if len(lines) == 1 else b"".join(line.raw for line in lines)
        for line in lines:
            if line.undecodable is not None:
                return _bad(first, raw, self._not_in_encoding(line, line.undecodable))
        return Row(line=first.number, offset=first.offset, raw=raw, fields=fields)

    def _unclosed(self, line: _Line) -> Row:
        failure = PipelineFailure(
            f"Line {line.number}: a quote is opened and never closed.",
            why=f"A field that starts with {self._format.quote} must end with one.",
            hint=_HINT,
        )
        return _bad(line, line.raw, failure)

    def _malformed(self, line: _Line) -> PipelineFailure:
        if self._format.quote is None or self._format.quote not in line.text:
            return PipelineFailure(
                f"Line {line.number}: there is a carriage return inside the row.",
                why="Lines end with LF or CR LF, and a line end inside a field needs quotes around the field.",
                hint="Send the interchange with LF or CR LF as its line ends.",
            )
        return PipelineFailure(
            f"Line {line.number}: a quote stands where it may not.",
            why=f"Only a whole field can be quoted, and a {self._format.quote} inside it is doubled.",
            hint=f"{_HINT} If quotes mean nothing in this format, define it with quote=None.",
        )

    def _not_in_encoding(self, line: _Line, error: UnicodeDecodeError) -> PipelineFailure:
        return PipelineFailure(
            f"Line {line.number}: byte {error.start + 1} is not {self._format.encoding}.",
            why=f"The byte 0x{line.raw[error.start]:02x} does not belong there.",
            hint="Send the interchange in the encoding of the pipeline, or define the pipeline with its encoding.",
        )

    def _take(self) -> _Line | None:
        return self._ahead.popleft() if self._ahead else next(self._source, None)

    def _read_lines(self, body: Body, size: BatchSize) -> Iterator[_Line]:
        encoding = self._format.encoding
        for block in line_blocks(body, size):
            offset = block.offset
            for number, line in enumerate(block.lines, block.first_line):
                start, end = offset, offset + len(line)
                raw = line + b"\n" if end < body.size else line
                offset += len(raw)
                if start == 0 and raw.startswith(_MARK):
                    raw = raw.removeprefix(_MARK)
                    start = len(_MARK)
                try:
                    yield _Line(number, start, raw, raw.decode(encoding), None)
                except UnicodeDecodeError as error:
                    # Stand-ins keep delimiters and quotes readable, so that the row ends where it ends.
                    yield _Line(number, start, raw, raw.decode(encoding, "surrogateescape"), error)


def _bad(line: _Line, raw: bytes, failure: PipelineFailure) -> Row:
    return Row(line=line.number, offset=line.offset, raw=raw, fields=[], failure=failure)
