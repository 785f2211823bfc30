"""An interchange of records, delimited or positional, perhaps between a header and a trailer (RCV-11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Body, Bytes
from postroom.pipelines.definitions import FlatFile
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE, BatchSize, Disassembled, Rows, too_large
from postroom.pipelines.documents.node_limit import MAX_NODES
from postroom.pipelines.documents.written_documents import WrittenDocuments
from postroom.pipelines.flat.csv_format import RowFormat
from postroom.pipelines.flat.csv_reader import CsvReader, Row
from postroom.pipelines.flat.document import json_writer, xml_writer
from postroom.pipelines.flat.layout import HEADER, Delimited, Positional
from postroom.pipelines.flat.promotion import FlatPromotion
from postroom.pipelines.flat.record import RecordReader, Text, format_of, in_line
from postroom.values import Value

#: A line takes as much memory as so many fields, beside its own.
_LINE_NODES = 4


def disassemble(pipeline: FlatFile, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message a record, with the lines that follow it. What is wrong with the header or the trailer fails the
    interchange, before anything of it is yielded: for the trailer everything is read once more."""
    flat = _Reading(pipeline, size)
    source = CsvReader(body, format=flat.format_of(pipeline.record), size=size)
    header = flat.header(source)
    trailer = flat.trailer(body)
    documents = _Documents(pipeline, flat, header.texts if header else [])
    records = source.rows()
    if trailer is not None:
        records = takewhile(lambda row: row.line < trailer.line, records)
    written = WrittenDocuments()
    rows = Rows(promotes=pipeline.promotes)
    for number, group in enumerate(documents.groups(records), 1):
        try:
            document, values, offset = documents.read(group, written)
        except PipelineFailure as failure:
            rows.fail(number, _alone(group, header, trailer), failure)
        else:
            rows.add(number, document, values, offset=offset, message_type=pipeline.message_type)
        if rows.fills(size):
            yield rows.finish(written.body)
            rows = Rows(promotes=pipeline.promotes)
    if len(rows):
        yield rows.finish(written.body)


class _Documents:
    """Makes documents of records."""

    def __init__(self, pipeline: FlatFile, flat: _Reading, header: list[Text]) -> None:
        fields = pipeline.record.fields
        line_fields = {name: layout.fields for name, layout in pipeline.lines.items()}
        self._record = flat.reader_of(pipeline.record, "")
        self._lines = {name: flat.reader_of(layout, f"{name}.") for name, layout in pipeline.lines.items()}
        self._promoted = FlatPromotion(pipeline, header)
        self._write = xml_writer(pipeline.message_type, fields, line_fields)
        if pipeline.output == "json":
            self._write = json_writer(fields, line_fields)

    def groups(self, records: Iterator[Row]) -> Iterator[list[Row]]:
        """A record each, with its lines. What has the tag of none stands with the record before it, and fails it: it
        may be one of its lines that was damaged."""
        if not self._lines:
            yield from ([row] for row in records)
            return
        group: list[Row] = []
        held = nodes = 0
        for row in records:
            if group and self._record.is_tagged(row):
                yield group
                group, held, nodes = [], 0, 0
            group.append(row)
            held += len(row.raw)
            nodes += len(row.fields) + _LINE_NODES
            if held > MAX_DOCUMENT_SIZE:
                raise too_large(f"Line {group[0].line}: the record and its lines have {held:,} bytes", "document")
            if nodes > MAX_NODES:
                raise PipelineFailure(
                    f"Line {group[0].line}: the record and its lines have more fields than a pipeline reads into.",
                    why=f"There may be {MAX_NODES:,}, each line {_LINE_NODES} more; all of them are held in memory.",
                    hint="Split it before it is sent, or receive it with the PassThrough pipeline.",
                )
        if group:
            yield group

    def read(self, group: list[Row], written: WrittenDocuments) -> tuple[bytes, list[Value | None], int]:
        """The document of a group, what is promoted from it, and where it stands."""
        first, *others = group
        texts = self._record.texts(first)
        following = [self._line(row) for row in others]
        try:
            values = self._promoted.values(texts)
            document = self._write(texts, following)
            offset = written.place(document)
        except PipelineFailure as failure:
            raise in_line(first, failure) from None
        return document, values, offset

    def _line(self, row: Row) -> tuple[str, list[Text]]:
        if row.failure is not None:
            raise row.failure
        for name, reader in self._lines.items():
            if reader.is_tagged(row):
                return name, reader.texts(row)
        failure = PipelineFailure(
            "the record begins with no tag that is known.",
            why=f"After a record these may follow: {', '.join(self._lines)}.",
            hint="Correct the record and send it again.",
        )
        raise in_line(row, failure)


@dataclass(frozen=True, kw_only=True)
class _Header:
    raw: bytes
    texts: list[Text]


@dataclass(frozen=True, kw_only=True)
class _Trailer:
    line: int
    after: Callable[[int], bytes]
    """As it would be written after so many records."""


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
        if self._pipeline.count is None:
            return _Trailer(line=last.line, after=lambda records: last.raw)
        said = texts[layout.names.index(self._pipeline.count)]
        if said is None or int(said) != records:
            raise PipelineFailure(
                f"The trailer says {said or 'nothing'}, and there are {records:,} records.",
                why="A part of the interchange may have been lost on its way.",
                hint="Send the interchange again, whole.",
            )
        text = last.raw.decode(format.encoding)
        before, after = text.split(format.bare(text), 1)
        count = self._pipeline.count

        def with_count(records: int) -> bytes:
            return (before + reader.with_value(row, count, str(records)) + after).encode(format.encoding)

        return _Trailer(line=last.line, after=with_count)


def _alone(group: list[Row], header: _Header | None, trailer: _Trailer | None) -> bytes:
    """A record as an interchange of its own, in the form that it came in: it can be mended and taken up again."""
    records = b"".join(row.raw for row in group)
    return (header.raw if header else b"") + records + (trailer.after(len(group)) if trailer else b"")


def _unreadable(role: str, what: str, why: str = "") -> PipelineFailure:
    return PipelineFailure(
        f"The {role} cannot be read.",
        why=f"{what} {why}".strip(),
        hint="Correct the interchange and send it again, whole.",
    )
