"""Assemblers for CSV and for flat files: the inverse of ``pipelines.Csv`` and ``pipelines.FlatFile``."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from postroom.errors import PipelineFailure
from postroom.message import Bytes, Message
from postroom.pipelines.components.contract import Assembler, get_body, replace_body
from postroom.pipelines.demotions import demotion_problems, find_demoted, format_demoted
from postroom.pipelines.flat.definition import Csv, FlatFile
from postroom.pipelines.flat.layout import HEADER, Delimited, Layout
from postroom.pipelines.promotions import Promote, Promotions
from postroom.properties import Property

#: The prefix of the path of a field of the trailer.
TRAILER = "trailer."


class CsvAssembler(Assembler):
    """Writes delimited rows (RFC 4180) with these ``columns``, after a line with their names unless ``header`` is
    false.

    The document is XML with an element for each column, or a JSON object; each object of a JSON array becomes a row.
    Elements and members that are not columns are not written. A field that is absent or null is empty, and an empty
    text is quoted. ``demote`` maps properties to columns. Rows end with ``end``.

    components.CsvAssembler(["id", "region", "total"], delimiter=";", demote={Region: "region"})
    """

    columns: Annotated[Sequence[str], AfterValidator(tuple)]
    demote: Promote = Promotions()
    header: bool = True
    delimiter: str = ","
    quote: str | None = '"'
    encoding: str = "utf-8"
    end: Literal["\n", "\r\n"] = "\r\n"

    def __init__(self, columns: Sequence[str], **settings: Any) -> None:
        super().__init__(**{"columns": columns, **settings})

    @property
    def demotes(self) -> tuple[Property, ...]:
        return tuple(self.demote)

    def problems(self) -> list[str]:
        read_by = Csv(header=self.columns, delimiter=self.delimiter, quote=self.quote, encoding=self.encoding)
        found = demotion_problems(self.demote) + read_by.problems()
        for prop, column in self.demote.items():
            if column.strip() and column not in self.columns:
                found.append(f"{prop.dotted_name} is demoted into {column!r}, which is not among the columns.")
        return found

    def assemble(self, message: Message) -> Message:
        from postroom.pipelines.documents.disassembled_batch import read_whole
        from postroom.pipelines.flat.csv_format import CsvFormat
        from postroom.pipelines.flat.document import read_rows
        from postroom.pipelines.flat.record_writer import write_row

        demoted = {column: format_demoted(value) for _, column, value in find_demoted(self.demote, message.context)}
        documents = read_rows(read_whole(get_body(message).body, "document"), self.columns)
        rows: list[Sequence[str | None]] = [self.columns] if self.header else []
        rows += [[{**texts, **demoted}.get(column) for column in self.columns] for texts in documents]
        layout = Delimited(["row"], delimiter=self.delimiter, quote=self.quote)
        format = CsvFormat(delimiter=self.delimiter, quote=self.quote, encoding="utf-8")
        lines = [write_row(layout, format, row, end=self.end) for row in rows]
        return _write_lines(message, lines, self.end, self.encoding, content_type="text/csv")


class FlatFileAssembler(Assembler):
    """Writes a record with delimited or positional fields, with a header and a trailer if they are defined.

    ``record``, ``lines``, ``header``, ``trailer`` and ``count`` are layouts as in ``pipelines.FlatFile``. The document
    is XML with an element for each field, or a JSON object, as ``FlatFile`` writes them. ``demote`` maps properties to
    fields of the record (``region``), of the header (``header.sender``) and of the trailer (``trailer.date``).
    ``values`` are the texts of other fields, by the same paths. ``count`` names the trailer's field with the number of
    records and lines. Records end with ``end``.

    Every record is read again before it is sent: if a receiver would read other values, the message fails.
    """

    record: Layout
    lines: Mapping[str, Layout] = Field(default_factory=dict)
    header: Layout | None = None
    trailer: Layout | None = None
    count: str | None = None
    demote: Promote = Promotions()
    values: Mapping[str, str] = Field(default_factory=dict)
    end: str = "\n"
    encoding: str = "utf-8"

    @property
    def demotes(self) -> tuple[Property, ...]:
        return tuple(self.demote)

    def problems(self) -> list[str]:
        read_by = FlatFile(
            message_type="document",
            record=self.record,
            lines=self.lines,
            header=self.header,
            trailer=self.trailer,
            count=self.count,
            end=self.end,
            encoding=self.encoding,
        )
        found = demotion_problems(self.demote) + read_by.problems()
        parts = {"": self.record, HEADER: self.header, TRAILER: self.trailer}
        fields = {f"{prefix}{name}" for prefix, part in parts.items() if part is not None for name in part.names}
        for prop, path in self.demote.items():
            if path.strip() and path not in fields:
                found.append(f"{prop.dotted_name} is demoted into {path!r}, which is not a field.")
        found += [f"values has {path!r}, which is not a field." for path in self.values if path not in fields]
        counted = {f"{TRAILER}{self.count}"} & {*self.values, *self.demote.values()}
        return found + [f"{path!r} is the count, which has no other value." for path in counted]

    def assemble(self, message: Message) -> Message:
        from postroom.pipelines.documents.disassembled_batch import read_whole
        from postroom.pipelines.flat.document import read_document

        line_names = {name: layout.names for name, layout in self.lines.items()}
        document = read_document(read_whole(get_body(message).body, "document"), self.record.names, line_names)
        demoted = {path: format_demoted(value) for _, path, value in find_demoted(self.demote, message.context)}
        given = {**self.values, **demoted}  # what is not in the document
        records = [self._write("record", self.record, {**document.fields, **given})]
        records += [self._write(name, self.lines[name], texts) for name, texts in document.lines]
        if self.trailer is not None:
            counted = {} if self.count is None else {self.count: str(len(records))}
            records.append(self._write("trailer", self.trailer, {**_select(given, TRAILER), **counted}))
        if self.header is not None:
            records.insert(0, self._write("header", self.header, _select(given, HEADER)))
        return _write_lines(message, records, self.end, self.encoding, content_type="text/plain")

    def _write(self, role: str, layout: Layout, texts: Mapping[str, str | None]) -> str:
        from postroom.pipelines.flat.record_writer import RecordWriter

        return RecordWriter(layout, role=role, end=self.end).write(texts)


def _select(values: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {path.removeprefix(prefix): text for path, text in values.items() if path.startswith(prefix)}


def _write_lines(message: Message, lines: Sequence[str], end: str, encoding: str, *, content_type: str) -> Message:
    try:
        content = "".join(f"{line}{end}" for line in lines).encode(encoding)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise PipelineFailure(
            f"The content has the character U+{ord(character):04X}, which {encoding} does not have.",
            hint="Write the file in another encoding, or remove the character in a map; then resume.",
        ) from None
    charset = None if codecs.lookup(encoding).name == "utf-8" else encoding
    return replace_body(message, Bytes(content), content_type=content_type, charset=charset)
