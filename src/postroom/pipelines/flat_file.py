"""An interchange of records, delimited or positional, perhaps between a header and a trailer (RCV-11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Body, Bytes
from postroom.pipelines.csv_format import RowFormat
from postroom.pipelines.csv_reader import CsvReader, Row
from postroom.pipelines.definitions import FlatFile
from postroom.pipelines.disassembled import BatchSize, Disassembled, Rows
from postroom.pipelines.flat_document import json_writer, xml_writer
from postroom.pipelines.flat_layout import HEADER, Delimited, Positional
from postroom.pipelines.flat_record import RecordReader, Text, format_of, in_line
from postroom.pipelines.promote import promote_text
from postroom.values import Value


def disassemble(pipeline: FlatFile, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message a record. What is wrong with the header or the trailer fails the interchange, before anything of it
    is yielded: for the trailer everything is read once more."""
    flat = _Reading(pipeline, size)
    source = CsvReader(body, format=flat.format_of(pipeline.record), size=size)
    header = flat.header(source)
    trailer = flat.trailer(body)
    write = xml_writer(pipeline.message_type, pipeline.record.fields)
    if pipeline.output == "json":
        write = json_writer(pipeline.record.fields)
    record = flat.reader_of(pipeline.record, "")
    promoted = _Promoted(pipeline, header.texts if header else [])
    rows = Rows(promotes=pipeline.promotes)
    for number, row in enumerate(source.rows(), 1):
        if trailer is not None and row.line >= trailer.line:
            break
        try:
            texts = record.texts(row)
            try:
                values = promoted.values(texts)
                document = write(texts)
                if len(document) > FRAGMENT_SIZE:
                    raise _too_long(len(document))
            except PipelineFailure as failure:
                raise in_line(row, failure) from None
        except PipelineFailure as failure:
            rows.fail(number, _alone(row, header, trailer), failure)
        else:
            rows.add(number, document, values, offset=0, message_type=pipeline.message_type)
        if rows.fills(size):
            yield rows.finish()
            rows = Rows(promotes=pipeline.promotes)
    if len(rows):
        yield rows.finish()


@dataclass(frozen=True, kw_only=True)
class _Header:
    raw: bytes
    texts: list[Text]


@dataclass(frozen=True, kw_only=True)
class _Trailer:
    line: int
    of_one: bytes
    """As it would be written after a single record."""


class _Reading:
    """How the lines of one interchange are read."""

    def __init__(self, pipeline: FlatFile, size: BatchSize) -> None:
        self._pipeline = pipeline
        self._size = size

    def format_of(self, layout: Delimited | Positional) -> RowFormat:
        return format_of(layout, encoding=self._pipeline.encoding, end=self._pipeline.end)

    def reader_of(self, layout: Delimited | Positional, prefix: str) -> RecordReader:
        entries = self._pipeline.promotions.entries
        hidden = {path.removeprefix(prefix) for prop, path in entries if prop.sensitive and path.startswith(prefix)}
        return RecordReader(layout, hidden=hidden)

    def header(self, source: CsvReader) -> _Header | None:
        """Taken from the top of the interchange."""
        layout = self._pipeline.header
        if layout is None:
            return None
        row = source.row(self.format_of(layout))
        if row is None:
            raise _unreadable("header", "The interchange is empty.")
        try:
            texts = self.reader_of(layout, HEADER).texts(row)
        except PipelineFailure as failure:
            raise _unreadable("header", failure.what, failure.why) from None
        if len(row.raw) > FRAGMENT_SIZE:
            raise _unreadable("header", f"It has {len(row.raw):,} bytes, and may have {FRAGMENT_SIZE:,}.")
        return _Header(raw=row.raw, texts=texts)

    def trailer(self, body: Body) -> _Trailer | None:
        """The last record of the interchange, which agrees with what stands before it."""
        layout = self._pipeline.trailer
        if layout is None:
            return None
        source = CsvReader(body, format=self.format_of(self._pipeline.record), size=self._size)
        self.header(source)
        records, last = -1, None
        for row in source.rows():
            records, last = records + 1, row
        if last is None:
            raise _unreadable("trailer", "There is none.")
        format, reader = self.format_of(layout), self.reader_of(layout, "trailer.")
        found = CsvReader(Bytes(last.raw), format=format, size=self._size).row(format)
        assert found is not None
        row = found._replace(line=last.line)
        try:
            texts = reader.texts(row)
        except PipelineFailure as failure:
            raise _unreadable("trailer", failure.what, failure.why) from None
        of_one = last.raw
        if self._pipeline.count is not None:
            said = texts[layout.names.index(self._pipeline.count)]
            if said is None or int(said) != records:
                raise PipelineFailure(
                    f"The trailer says {said or 'nothing'}, and there are {records:,} records.",
                    why="A part of the interchange may have been lost on its way.",
                    hint="Send the interchange again, whole.",
                )
            alone = reader.with_value(row, self._pipeline.count, "1").encode(format.encoding)
            text = last.raw.decode(format.encoding)
            before, after = text.split(format.bare(text), 1)
            of_one = before.encode(format.encoding) + alone + after.encode(format.encoding)
        return _Trailer(line=last.line, of_one=of_one)


class _Promoted:
    """Reads the promoted values out of a record; those of the header are the same for every record."""

    def __init__(self, pipeline: FlatFile, header: list[Text]) -> None:
        self._values: list[Value | None] = []
        self._own = []
        for place, (prop, path) in enumerate(pipeline.promotions.entries):
            self._values.append(None)
            if not path.startswith(HEADER):
                self._own.append((place, prop, path, pipeline.record.names.index(path)))
            elif pipeline.header is not None:
                text = header[pipeline.header.names.index(path.removeprefix(HEADER))]
                self._values[place] = promote_text(prop, text, path=path)

    def values(self, texts: list[Text]) -> list[Value | None]:
        values = self._values.copy()
        for place, prop, path, position in self._own:
            values[place] = promote_text(prop, texts[position], path=path)
        return values


def _alone(row: Row, header: _Header | None, trailer: _Trailer | None) -> bytes:
    """A record as an interchange of its own, in the form that it came in: it can be mended and taken up again."""
    return (header.raw if header else b"") + row.raw + (trailer.of_one if trailer else b"")


def _unreadable(role: str, what: str, why: str = "") -> PipelineFailure:
    return PipelineFailure(
        f"The {role} cannot be read.",
        why=f"{what} {why}".strip(),
        hint="Correct the interchange and send it again, whole.",
    )


def _too_long(size: int) -> PipelineFailure:
    return PipelineFailure(
        f"the document of the record has {size:,} bytes.",
        why=f"It is carried in one piece, which may have at most {FRAGMENT_SIZE:,} bytes.",
        hint="Send large content as a document of its own.",
    )
