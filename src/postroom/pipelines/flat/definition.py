"""The receive pipelines for delimited rows and for flat files.

pipelines.Csv(promote={Region: "region"}, delimiter=";", header=["id", "region", "total"])
pipelines.FlatFile(message_type="urn:orders#Order", record=pipelines.Delimited(["id", "region"]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from postroom.pipelines.definition import BAD_DOCUMENTS, Disassemble, Format, Promoting, limit_problems, type_problems
from postroom.pipelines.flat import csv_format
from postroom.pipelines.flat import layout as flat_layout
from postroom.pipelines.flat.layout import Layout
from postroom.values import Value


class Csv(Promoting, Format):
    """Reads rows of delimited text (RFC 4180). Each row becomes a message.

    ``promote`` maps properties to columns. ``header=True``: the first row names the columns, and the body of a message
    is this header line followed by the row. ``header=[names]``: the interchange has no header, and the body is the row.
    ``header=False``: the columns have no names, and nothing can be promoted. Bodies keep the bytes and line ends of the
    interchange, so each is an interchange of the same format with one row.

    A field that is empty and not quoted is absent. A quoted field may contain delimiters, line ends and doubled quotes.
    A quote elsewhere is malformed (``quote=None``: quotes have no meaning). Every row has one field per column. Blank
    lines are ignored. A bad row is suspended alone, unless ``recoverable`` is false. A header without a promoted column
    fails the interchange. An interchange without rows yields no messages and is not a failure.
    """

    kind: Literal["csv"] = "csv"
    content_type: ClassVar[str] = "text/csv"
    delimiter: str = ","
    quote: str | None = '"'
    header: Annotated[
        bool | Sequence[str], AfterValidator(lambda header: header if isinstance(header, bool) else tuple(header))
    ] = True
    encoding: str = "utf-8"
    message_type: str | None = None
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + csv_format.problems(self) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.flat.csv_rows import disassemble

        return partial(disassemble, self)


class FlatFile(Promoting, Format):
    """Reads records of delimited or positional fields, optionally with a header and a trailer (RCV-11).

    Each record becomes a document of ``message_type`` (a namespace, # and a name, or a name only). In XML the root has
    this name and contains an element without a namespace for each field. ``output="json"`` writes an object instead.
    The header and the trailer are removed. If they are defined, they are required. ``promote`` maps properties to
    fields of the record, and to fields of the header (``header.sender``), which are promoted to every document.
    ``count`` names the trailer's field with the number of records. If it differs, nothing is published.

    A record may be followed by others that belong to it, such as the lines of an order. ``lines`` names them and gives
    their layouts. All of them and the record need tags and the same delimiters. Each is an element of that name after
    the fields of the record (in JSON, an object in a list of that name). ``count`` includes them.

    Records end with LF or CR LF, or with the character ``end``. Empty lines are ignored. A bad record is suspended
    alone, unless ``recoverable`` is false: as an interchange of its own, with the header and the trailer.
    """

    kind: Literal["flat-file"] = "flat-file"
    content_type: ClassVar[str] = "text/plain"
    message_type: str
    record: Layout
    lines: Mapping[str, Layout] = Field(default_factory=dict)
    header: Layout | None = None
    trailer: Layout | None = None
    count: str | None = None
    end: Annotated[str, AfterValidator(lambda end: "\n" if end == "\r\n" else end)] = "\n"
    encoding: str = "utf-8"
    output: Literal["xml", "json"] = "xml"
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + flat_layout.problems(self) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)

    def can_read(self, head: bytes) -> bool:
        """Return True if the first record has no tag, or if ``head`` starts with this tag."""
        tag = (self.header or self.record).tag
        text = head.decode(self.encoding, "replace").lstrip("\ufeff\r\n")
        return tag is None or text.startswith(tag)

    def get_document_type(self, interchange_type: str) -> str:
        return f"application/{self.output}"

    def make_resumed_reader(self, *, received: bool) -> FlatFile:
        return self if received else FlatDocument.model_construct(**dict(self))

    def select_external_values(self, body: bytes, values: Mapping[str, Value]) -> Mapping[str, Value]:
        in_header = {prop.key for prop, path in self.promotions.entries if path.startswith(flat_layout.HEADER)}
        return {key: value for key, value in values.items() if key in in_header}

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.flat.file import disassemble

        return partial(disassemble, self)


class FlatDocument(FlatFile):
    """Reads the document of one record when it is resumed. Never stored."""

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.flat.document import disassemble

        return partial(disassemble, self)
