"""Receive pipelines as a user declares them and as the MessageBox stores them.

    pipelines.PassThrough()
    pipelines.Json(promote={Region: "region", Total: "totals.net"}, message_type="order")
    pipelines.Json(promote={Region: "region"}, split="orders", recoverable=True)
    pipelines.JsonLines(promote={Region: "region"}, recoverable=False)
    pipelines.Xml(promote={Region: "/o:order/o:region"}, namespaces={"o": "urn:orders"}, split="/*/o:order")
    pipelines.XmlReceive(schemas=app.schemas("schemas"))
    pipelines.Csv(promote={Region: "region"}, delimiter=";", header=["id", "region", "total"])
    pipelines.FlatFile(message_type="urn:orders#Order", record=pipelines.Delimited(["id", "region"]))

A definition is a frozen value. Its constructor accepts wrong settings. ``problems()`` lists them, so that the loader of
an application can report the problems of all definitions together. A definition with problems must not be run. Pydantic
rejects an argument of the wrong Python type at once.

A ``recoverable`` pipeline has a limit: if an interchange has more than ``bad_documents`` bad documents, the rest of it
is suspended as one message (None: no limit).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from postroom.errors import BadValue
from postroom.message import Body, Context
from postroom.pipelines.flat import csv_format
from postroom.pipelines.flat import layout as flat_layout
from postroom.pipelines.flat.layout import Layout
from postroom.pipelines.json import path as json_path
from postroom.pipelines.promotions import Promote, Promotions
from postroom.properties import Property
from postroom.schemas import Schemas
from postroom.system_properties import BTS

if TYPE_CHECKING:
    from postroom.pipelines.documents.disassembled_batch import BatchSize, DisassembledBatch

#: The default maximum number of bad documents in a recoverable interchange.
BAD_DOCUMENTS = 1_000
#: The time limit of a format for one batch. The time to read a batch grows with its size; the limit is for unexpected
#: content.
FORMAT_SECONDS = 300.0


class Definition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    #: The media type of the message bodies.
    content_type: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def recoverable(self) -> bool | None: ...

    @property
    def call_seconds(self) -> float:
        """The time limit for one call of a component or one batch of a format."""
        return FORMAT_SECONDS

    @property
    def promotes(self) -> tuple[Property, ...]:
        """The properties that this pipeline may promote. Each is a column of its batches."""
        return ()

    def problems(self) -> list[str]:
        """Describe everything that is wrong with this definition. The list is empty if it can be run."""
        return []

    def disassemble(
        self,
        body: Body,
        *,
        context: Context = Context(),  # noqa: B008 - immutable
        batch_rows: int = 10_000,
        batch_bytes: int = 16 << 20,
    ) -> Iterator[DisassembledBatch]:
        """Yield the messages of ``body`` in batches. A batch ends at ``batch_rows`` or soon after ``batch_bytes``.
        ``context`` is the context that the adapter wrote for the interchange.

        Raises PipelineFailure if the interchange fails as a whole. This can happen after some batches: nothing of a
        standard interchange may be published before the iterator has ended, and one bad document fails the whole
        interchange (RCV-12). A recoverable interchange may be published batch by batch. A failure after some batches,
        such as a line that is too long, is then a failure of the rest.
        """
        # pyarrow, msgspec and lxml are needed to run a pipeline, not to define one.
        from postroom.pipelines.documents.disassembled_batch import BatchSize

        batches = self._run(body, context, BatchSize(rows=batch_rows, bytes=batch_bytes))
        return batches if self.recoverable else _raise_failures(batches)

    def _run(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        from postroom.pipelines.running.formats import run_format

        return run_format(self, body, context, size)  # type: ignore[arg-type]


def _raise_failures(batches: Iterator[DisassembledBatch]) -> Iterator[DisassembledBatch]:
    for batch in batches:
        if batch.failures:
            raise batch.failures[0].failure
        yield batch


class Promoting(Definition):
    """A pipeline whose definition lists what it promotes, and from where."""

    promote: Promote = Promotions()

    @property
    def promotions(self) -> Promotions:
        assert isinstance(self.promote, Promotions)
        return self.promote

    @property
    def promotes(self) -> tuple[Property, ...]:
        return self.promotions.properties

    def problems(self) -> list[str]:
        return self.promotions.problems()


class PassThrough(Definition):
    """Publishes the interchange unchanged as one message, without a message type. Its content is not read."""

    kind: Literal["pass-through"] = "pass-through"
    content_type: ClassVar[str] = "application/octet-stream"
    recoverable: ClassVar[bool] = False
    bad_documents: ClassVar[int | None] = BAD_DOCUMENTS


class Json(Promoting):
    """Reads an interchange that is one JSON document, or with ``split`` an envelope around an array of documents.

    ``promote`` maps properties to dotted paths (``customer.address.city``; a dot inside a key is written ``\\.``).
    Types are strict: a str property takes a JSON string, an int property a whole number, a Decimal property a
    number or a string (its digits exactly), a float property a number, a bool property true or false, a datetime
    property an ISO 8601 string. An absent or null value is not promoted; anything else fails the document. If a key
    occurs twice, its last value is used. ``message_type`` is promoted as BTS.MessageType. An empty interchange is a
    failure.

    Without ``split`` the body is the interchange, byte for byte. With it, each element of the array at that path
    (``split="orders"``, ``split="batch.orders"``; ``split="$"``: the interchange is the array) becomes a message, byte
    for byte, and the paths of ``promote`` start at that element. An empty array yields no messages. It is a failure if
    there is no array at the path, or if the interchange is not JSON. All documents or none are published, unless it is
    ``recoverable``: then a document with a wrong value is suspended alone.
    """

    kind: Literal["json"] = "json"
    content_type: ClassVar[str] = "application/json"
    message_type: str | None = None
    split: str | None = None
    recoverable: bool = False
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + json_path.problems(self.promotions) + type_problems(self.message_type)
        found += json_path.split_problems(self.split) + limit_problems(self.bad_documents)
        if self.recoverable and self.split is None:
            found.append("recoverable is for interchanges with several documents; set split to the path of the array.")
        return found


class JsonLines(Promoting):
    """Reads one JSON document per line. Each line, without its line end, is the body of a message.

    It promotes as ``Json`` does. Blank lines, a byte order mark and the CR of a CR LF are ignored. An interchange
    without documents yields no messages and is no failure. A bad line is suspended alone. If ``recoverable`` is false,
    it fails the interchange.
    """

    kind: Literal["json-lines"] = "json-lines"
    content_type: ClassVar[str] = "application/json"
    message_type: str | None = None
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + json_path.problems(self.promotions) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)


class Xml(Promoting):
    """Reads an interchange that is one XML document, or with ``split`` an envelope around several documents.

    ``promote`` maps properties to XPaths that select an element without children, an attribute or a text.
    ``namespaces`` declares their prefixes. BTS.MessageType is the root's namespace, '#' and name. If a path selects
    nothing, an element with ``xsi:nil``, or (except for a str property) an empty element, nothing is promoted. If it
    selects several nodes, the document fails.

    Without ``split`` the body is the interchange, byte for byte. With it, each element that the XPath ``split`` selects
    becomes a message: the element in UTF-8 with the namespace declarations of its envelope, and the paths of
    ``promote`` start at that element. An envelope that has the root named in ``split`` and neither elements nor text in
    it is empty and yields no messages. In every other case it is a failure if ``split`` selects nothing. An empty
    interchange is a failure, too. All documents or none are published. A DOCTYPE is rejected.
    """

    kind: Literal["xml"] = "xml"
    content_type: ClassVar[str] = "application/xml"
    namespaces: Mapping[str, str] = Field(default_factory=dict)
    split: str | None = None
    recoverable: ClassVar[bool] = False
    bad_documents: ClassVar[int | None] = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        from postroom.pipelines.xml import path as xml_path

        return super().problems() + xml_path.problems(self.promotions, self.namespaces, self.split)


class XmlReceive(Definition):
    """Reads XML whose message types have schemas (``schemas = app.schemas("schemas")``).

    The schemas define what is promoted, which fields are distinguished and which roots are envelopes. Envelopes are
    opened, up to a depth of 16, and every document in them becomes a message. A document without a schema is a failure,
    unless ``allow_unrecognized`` is set: then it passes unchanged, with its message type only. Content that is not XML
    is always a failure. With ``recoverable`` a bad document of an envelope is suspended alone. A DOCTYPE is rejected.
    """

    kind: Literal["xml-receive"] = "xml-receive"
    content_type: ClassVar[str] = "application/xml"
    schemas: Schemas
    allow_unrecognized: bool = False
    recoverable: bool = False
    bad_documents: int | None = BAD_DOCUMENTS

    @property
    def promotes(self) -> tuple[Property, ...]:
        return self.schemas.properties

    def problems(self) -> list[str]:
        found = limit_problems(self.bad_documents)
        if not len(self.schemas) and not self.allow_unrecognized:
            found.append("There are no schemas, so every message would fail. Add schemas or set allow_unrecognized.")
        return found


def _freeze_header(header: bool | Sequence[str]) -> bool | tuple[str, ...]:
    return header if isinstance(header, bool) else tuple(header)


class Csv(Promoting):
    """Reads rows of delimited text (RFC 4180). Each row becomes a message.

    ``promote`` maps properties to columns. ``header=True``: the first row names the columns, and the body of a message
    is this header line followed by the row. ``header=[names]``: the interchange has no header, and the body is the row.
    ``header=False``: the columns have no names, and nothing can be promoted. Bodies keep the bytes and line ends of the
    interchange, so each is an interchange of the same format with one row.

    A field that is empty and not quoted is absent. A quoted field may contain delimiters, line ends and doubled quotes.
    A quote elsewhere is malformed (``quote=None``: quotes have no meaning). Every row has one field per column. Blank
    lines are ignored. A bad row is suspended alone, unless ``recoverable`` is false. A header without a promoted column
    fails the interchange. An interchange without rows yields no messages and is no failure.
    """

    kind: Literal["csv"] = "csv"
    content_type: ClassVar[str] = "text/csv"
    delimiter: str = ","
    quote: str | None = '"'
    header: Annotated[bool | Sequence[str], AfterValidator(_freeze_header)] = True
    encoding: str = "utf-8"
    message_type: str | None = None
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + csv_format.problems(self) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)


def _normalize_line_end(end: str) -> str:
    return "\n" if end == "\r\n" else end


class FlatFile(Promoting):
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
    end: Annotated[str, AfterValidator(_normalize_line_end)] = "\n"
    encoding: str = "utf-8"
    output: Literal["xml", "json"] = "xml"
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    @property
    def document_type(self) -> str:
        """The media type of the documents, which differs from that of the interchange."""
        return f"application/{self.output}"

    def problems(self) -> list[str]:
        found = super().problems() + flat_layout.problems(self) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)


class FlatDocument(FlatFile):
    """Reads the document of one record when it is resumed. Never stored."""


#: The pipelines that are one disassembler, by ``kind``.
Format = PassThrough | Json | JsonLines | Xml | XmlReceive | Csv | FlatFile

#: The same, as a field of a stored definition.
StoredFormat = Annotated[Format, Field(discriminator="kind")]


def limit_problems(bad_documents: int | None) -> list[str]:
    """Describe what is wrong with a limit on bad documents. None is no limit."""
    if bad_documents is None or bad_documents >= 0:
        return []
    return [f"bad_documents is {bad_documents}, but must be 0 or more."]


def type_problems(message_type: str | None) -> list[str]:
    """Describe what is wrong with the message type of a definition."""
    if message_type is None:
        return []
    if not message_type:
        return ["The message type is empty; leave it out for messages without a type."]
    try:
        BTS.MessageType.check(message_type)
    except BadValue as error:
        return [error.what]
    return []
