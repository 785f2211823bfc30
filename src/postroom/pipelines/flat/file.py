"""Disassembles delimited or positional records, optionally with a header and a trailer (RCV-11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from postroom.errors import PipelineFailure, format_count
from postroom.message import FRAGMENT_SIZE, Body, Bytes
from postroom.pipelines.documents.disassembled_batch import (
    MAX_DOCUMENT_SIZE,
    BadDocument,
    BatchSize,
    DisassembledBatch,
    Document,
    WrittenDocuments,
    build_batches,
    oversize_failure,
)
from postroom.pipelines.documents.node_limit import MAX_NODES
from postroom.pipelines.flat.csv_format import FlatRowFormat
from postroom.pipelines.flat.csv_reader import CsvReader, Row
from postroom.pipelines.flat.definition import FlatFile
from postroom.pipelines.flat.document import make_json_writer, make_xml_writer
from postroom.pipelines.flat.layout import HEADER, Delimited, Positional
from postroom.pipelines.flat.record import FlatPromotion, RecordReader, Text, add_line_number, row_format

#: The memory that a line takes in addition to its fields, as a number of fields.
_LINE_NODES = 4


def disassemble(pipeline: FlatFile, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message per record, with the lines that follow it. A bad header or trailer fails the interchange before
    the first batch. To find the trailer, the interchange is read twice."""
    reader = _InterchangeReader(pipeline, size)
    source = CsvReader(body, format=reader.row_format(pipeline.record), size=size)
    header = reader.read_header(source)
    trailer = reader.read_trailer(body)
    documents = _Documents(pipeline, reader, header.texts if header else [])
    records = source.rows()
    if trailer is not None:
        records = takewhile(lambda row: row.line < trailer.line, records)
    written = WrittenDocuments()

    def read_documents() -> Iterator[Document | BadDocument]:
        for number, group in enumerate(documents.groups(records), 1):
            try:
                yield documents.read(number, group, written)
            except PipelineFailure as failure:
                yield BadDocument(number=number, body=_make_interchange(group, header, trailer), failure=failure)

    yield from build_batches(pipeline.promotes, read_documents(), size, written)


class _Documents:
    """Converts records to documents."""

    def __init__(self, pipeline: FlatFile, reader: _InterchangeReader, header: list[Text]) -> None:
        fields = pipeline.record.fields
        line_fields = {name: layout.fields for name, layout in pipeline.lines.items()}
        self._record = reader.make_record_reader(pipeline.record, "")
        self._lines = {name: reader.make_record_reader(layout, f"{name}.") for name, layout in pipeline.lines.items()}
        self._promoted = FlatPromotion(pipeline, header)
        self._message_type = pipeline.message_type
        self._write = make_xml_writer(pipeline.message_type, fields, line_fields)
        if pipeline.output == "json":
            self._write = make_json_writer(fields, line_fields)

    def groups(self, records: Iterator[Row]) -> Iterator[list[Row]]:
        """Yield each record with its lines. A row without a known tag stays with the record before it and fails it,
        because it may be a damaged line of this record."""
        if not self._lines:
            yield from ([row] for row in records)
            return
        group: list[Row] = []
        total = nodes = 0
        for row in records:
            if group and self._record.has_tag(row):
                yield group
                group, total, nodes = [], 0, 0
            group.append(row)
            total += len(row.raw)
            nodes += len(row.fields) + _LINE_NODES
            if total > MAX_DOCUMENT_SIZE:
                raise oversize_failure(
                    f"Line {group[0].line}: the record and its lines have {total:,} bytes", "document"
                )
            if nodes > MAX_NODES:
                raise PipelineFailure(
                    f"Line {group[0].line}: the record and its lines have more fields than a pipeline can read.",
                    why=f"The maximum is {MAX_NODES:,}, and each line counts as {_LINE_NODES} more.",
                    hint="Split it before you send it, or receive it with the PassThrough pipeline.",
                )
        if group:
            yield group

    def read(self, number: int, group: list[Row], written: WrittenDocuments) -> Document:
        """Return the document of a group."""
        first, *others = group
        texts = self._record.texts(first)
        following = [self._read_line(row) for row in others]
        try:
            values = self._promoted.values(texts)
            document = self._write(texts, following)
            offset = written.store(document)
        except PipelineFailure as failure:
            raise add_line_number(first, failure) from None
        return Document(number, document, values, self._message_type, offset)

    def _read_line(self, row: Row) -> tuple[str, list[Text]]:
        if row.failure is not None:
            raise row.failure
        for name, reader in self._lines.items():
            if reader.has_tag(row):
                return name, reader.texts(row)
        failure = PipelineFailure(
            "the record has an unknown tag.",
            why=f"The lines of a record are: {', '.join(self._lines)}.",
            hint="Correct the record and send it again.",
        )
        raise add_line_number(row, failure)


@dataclass(frozen=True, kw_only=True)
class _Header:
    raw: bytes
    texts: list[Text]


@dataclass(frozen=True, kw_only=True)
class _Trailer:
    line: int
    write: Callable[[int], bytes]
    """Returns the trailer of an interchange with this number of records."""


class _InterchangeReader:
    """Reads the header, the records and the trailer of one interchange."""

    def __init__(self, pipeline: FlatFile, size: BatchSize) -> None:
        self._pipeline = pipeline
        self._size = size

    def row_format(self, layout: Delimited | Positional) -> FlatRowFormat:
        return row_format(layout, encoding=self._pipeline.encoding, end=self._pipeline.end)

    def make_record_reader(self, layout: Delimited | Positional, prefix: str) -> RecordReader:
        entries = self._pipeline.promotions.entries
        hidden = {path.removeprefix(prefix) for prop, path in entries if prop.sensitive and path.startswith(prefix)}
        return RecordReader(layout, hidden=hidden)

    def read_header(self, source: CsvReader) -> _Header | None:
        """Read the first record of the interchange, if the definition has a header."""
        layout = self._pipeline.header
        if layout is None:
            return None
        row = source.read_row(self.row_format(layout))
        if row is None:
            raise _unreadable_failure("header", "The interchange is empty.")
        try:
            texts = self.make_record_reader(layout, HEADER).texts(row)
        except PipelineFailure as failure:
            raise _unreadable_failure("header", failure.what, failure.why) from None
        if len(row.raw) > FRAGMENT_SIZE:
            raise _unreadable_failure("header", f"It has {len(row.raw):,} bytes; the maximum is {FRAGMENT_SIZE:,}.")
        return _Header(raw=row.raw, texts=texts)

    def read_trailer(self, body: Body) -> _Trailer | None:
        """Read the last record of the interchange, if the definition has a trailer, and check its count."""
        layout = self._pipeline.trailer
        if layout is None:
            return None
        source = CsvReader(body, format=self.row_format(self._pipeline.record), size=self._size)
        self.read_header(source)
        records, last = -1, None
        for row in source.rows():
            records, last = records + 1, row
        if last is None:
            raise _unreadable_failure("trailer", "The interchange has no trailer.")
        format, reader = self.row_format(layout), self.make_record_reader(layout, "trailer.")
        found = CsvReader(Bytes(last.raw), format=format, size=self._size).read_row(format)
        assert found is not None
        row = found._replace(line=last.line)
        try:
            texts = reader.texts(row)
        except PipelineFailure as failure:
            raise _unreadable_failure("trailer", failure.what, failure.why) from None
        if self._pipeline.count is None:
            return _Trailer(line=last.line, write=lambda records: last.raw)
        count_text = texts[layout.names.index(self._pipeline.count)]
        if count_text is None or int(count_text) != records:
            raise PipelineFailure(
                f"The trailer has the count {count_text or '(empty)'}, but there {'is' if records == 1 else 'are'}"
                f" {format_count(records, 'record')}.",
                why="A part of the interchange may have been lost in transit.",
                hint="Send the complete interchange again.",
            )
        text = last.raw.decode(format.encoding)
        before, after = text.split(format.strip_end(text), 1)
        count = self._pipeline.count

        def write_count(records: int) -> bytes:
            return (before + reader.replace_value(row, count, str(records)) + after).encode(format.encoding)

        return _Trailer(line=last.line, write=write_count)


def _make_interchange(group: list[Row], header: _Header | None, trailer: _Trailer | None) -> bytes:
    """Return a record as an interchange of its own, so that it can be corrected and resumed."""
    records = b"".join(row.raw for row in group)
    return (header.raw if header else b"") + records + (trailer.write(len(group)) if trailer else b"")


def _unreadable_failure(role: str, what: str, why: str = "") -> PipelineFailure:
    return PipelineFailure(
        f"The {role} cannot be read.",
        why=f"{what} {why}".strip(),
        hint="Correct the interchange and send all of it again.",
    )
