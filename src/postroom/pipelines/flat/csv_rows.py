"""Disassembles delimited rows. Each row, with the header if there is one, becomes a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from postroom.errors import PipelineFailure, format_count
from postroom.message import FRAGMENT_SIZE, Body
from postroom.pipelines.documents.disassembled_batch import (
    BadDocument,
    BatchSize,
    DisassembledBatch,
    Document,
    WrittenDocuments,
    build_batches,
)
from postroom.pipelines.flat.csv_format import CsvFormat
from postroom.pipelines.flat.csv_reader import CsvReader, Row
from postroom.pipelines.flat.definition import Csv
from postroom.pipelines.flat.record import add_line_number
from postroom.pipelines.promotions import promote_text
from postroom.values import Value


def disassemble(pipeline: Csv, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message per row. A bad header fails the interchange, because no row can be read without it."""
    format = CsvFormat(delimiter=pipeline.delimiter, quote=pipeline.quote, encoding=pipeline.encoding)
    source = CsvReader(body, format=format, size=size).rows()
    header = b""
    names: Sequence[str] | None = pipeline.header if isinstance(pipeline.header, tuple) else None
    if pipeline.header is True:
        first = next(source, None)
        if first is None:
            return
        header, names = first.raw, _read_names(first)
    reader = _RowReader(pipeline, names)
    written = WrittenDocuments()

    def read_documents() -> Iterator[Document | BadDocument]:
        for number, row in enumerate(source, 1):
            document = header + row.raw
            try:
                values = reader.values(row)
                offset = written.store(document) if header else row.offset
            except PipelineFailure as failure:
                yield BadDocument(number=number, body=document, failure=failure)
            else:
                yield Document(number, document, values, pipeline.message_type, offset)

    yield from build_batches(pipeline.promotes, read_documents(), size, written)


class _RowReader:
    """Reads the promoted values of a row."""

    def __init__(self, pipeline: Csv, names: Sequence[str] | None) -> None:
        self._columns = None if names is None else len(names)
        self._promoted = [
            (prop, column, _find_column(column, names or ())) for prop, column in pipeline.promotions.entries
        ]

    def values(self, row: Row) -> list[Value | None]:
        if row.failure is not None:
            raise row.failure
        if self._columns is not None and len(row.fields) != self._columns:
            raise PipelineFailure(
                f"Line {row.line}: the row has {format_count(len(row.fields), 'field')}, not {self._columns}.",
                why="Every row needs one field per column.",
                hint="Correct the row and send it again. A field that contains the delimiter must be quoted.",
            )
        try:
            return [promote_text(prop, row.fields[position], path=path) for prop, path, position in self._promoted]
        except PipelineFailure as failure:
            raise add_line_number(row, failure) from None


def _read_names(header: Row) -> list[str]:
    if header.failure is not None:
        raise PipelineFailure(
            "The header cannot be read.", why=header.failure.what, hint="Correct the first line and send it again."
        )
    if len(header.raw) > FRAGMENT_SIZE:
        raise PipelineFailure(
            f"The header has {len(header.raw):,} bytes.",
            why=f"It is part of every message and may have at most {FRAGMENT_SIZE:,} bytes.",
            hint="Check that the interchange has a header, or define the pipeline with the names of its columns.",
        )
    return [field or "" for field in header.fields]


def _find_column(column: str, names: Sequence[str]) -> int:
    if names.count(column) == 1:
        return names.index(column)
    shown = ", ".join(names)
    raise PipelineFailure(
        f"The header has {names.count(column) or 'no'} columns named {column!r}.",
        why=f"Its columns are: {shown[:300]}.",
        hint="Send the interchange with that column, or promote from another column.",
    )
