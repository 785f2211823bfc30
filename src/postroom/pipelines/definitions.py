"""Receive pipelines as a user writes them and as the MessageBox keeps them.

    pipelines.PassThrough()
    pipelines.Json(promote={Region: "region", Total: "totals.net"}, message_type="order")
    pipelines.Json(promote={Region: "region"}, split="orders", recoverable=True)
    pipelines.JsonLines(promote={Region: "region"}, recoverable=False)
    pipelines.Xml(promote={Region: "/o:order/o:region"}, namespaces={"o": "urn:orders"}, split="/*/o:order")
    pipelines.XmlReceive(schemas=app.schemas("schemas"))
    pipelines.Csv(promote={Region: "region"}, delimiter=";", header=["id", "region", "total"])
    pipelines.FlatFile(message_type="urn:orders#Order", record=pipelines.Delimited(["id", "region"]))

A definition is a frozen value. Building one never fails because of what it says: ``problems()`` lists everything that
is wrong with it, in words, so that the loader of an application can show all problems of all definitions at once. A
definition with problems must not be run. (An argument of the wrong Python type is refused at once, by pydantic.)

Those that can be ``recoverable`` have a limit: of an interchange with more than ``bad_documents`` bad documents the
rest is suspended as one (None: no limit).
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
    from postroom.pipelines.documents.disassembled_batch import Disassembled

#: How many documents of one recoverable interchange may be bad, unless its pipeline says otherwise.
BAD_DOCUMENTS = 1_000
#: How long a format that is a pipeline by itself may take for one batch. Its time goes with the size of what it reads;
#: this is the limit for unexpected content.
FORMAT_SECONDS = 300.0


class Definition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    #: The media type of the bodies that come of it.
    content_type: ClassVar[str]

    @property
    def call_seconds(self) -> float:
        """How long one call of a component, or one batch of a format, may take."""
        return FORMAT_SECONDS

    @property
    def promotes(self) -> tuple[Property, ...]:
        """The properties that this pipeline may promote; each is a column of what it disassembles."""
        return ()

    def problems(self) -> list[str]:
        """Everything that is wrong with this definition, in words; empty if it can be run."""
        return []

    def disassemble(
        self,
        body: Body,
        *,
        context: Context = Context(),  # noqa: B008 - immutable
        batch_rows: int = 10_000,
        batch_bytes: int = 16 << 20,
    ) -> Iterator[Disassembled]:
        """The messages in ``body``, a batch at a time; a batch ends at ``batch_rows`` or soon after ``batch_bytes``.
        ``context`` is what the adapter wrote about the interchange.

        Raises PipelineFailure if the interchange fails as a whole, perhaps after batches have been yielded: nothing of
        a standard interchange may be published before the iterator has ended. A recoverable one may be published as
        it comes; what is raised after that (by a line that is too long to be held) concerns the rest of it.
        """
        # pyarrow, msgspec and lxml are needed to run a pipeline, not to define one.
        from postroom.pipelines.documents.disassembled_batch import BatchSize
        from postroom.pipelines.running.stages import receive

        size = BatchSize(rows=batch_rows, bytes=batch_bytes)
        return receive(self, body, context, size)  # type: ignore[arg-type]


class Promoting(Definition):
    """A pipeline that says itself what it promotes, and from where."""

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
    """The interchange as it is, as one message: no message type, nothing promoted from its content, never read."""

    kind: Literal["pass-through"] = "pass-through"
    content_type: ClassVar[str] = "application/octet-stream"
    recoverable: ClassVar[bool] = False
    bad_documents: ClassVar[int | None] = BAD_DOCUMENTS


class Json(Promoting):
    """An interchange that is one JSON document, or with ``split`` an envelope around an array of them.

    ``promote`` maps properties to dotted paths (``customer.address.city``; a dot inside a key is written ``\\.``).
    Types are strict: a str property takes a JSON string, an int property a whole number, a Decimal property a
    number or a string (its digits exactly), a float property a number, a bool property true or false, a datetime
    property an ISO 8601 string. An absent or null value is not promoted; anything else fails the document. Of a key
    that occurs twice the last value counts. ``message_type`` is promoted as BTS.MessageType. An empty interchange
    is a failure.

    Without ``split`` the body is the interchange, byte for byte. With it, each element of the array at that path
    (``split="orders"``, ``split="batch.orders"``; ``split="$"``: the interchange is the array) becomes a message of its
    own, in the bytes that it was sent in, and ``promote`` sees that element as the document. An empty array yields no
    messages. Something else than an array at the path, or nothing, is a failure, as is an interchange that is not
    JSON. All documents or none are published, unless it is ``recoverable``: then one with a wrong value is suspended
    alone.
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
            found.append("recoverable is for several documents in one interchange; say where they are with split.")
        return found


class JsonLines(Promoting):
    """One JSON document a line; each line, without its line end, is the body of a message.

    Promotes like ``Json``. Blank lines are no documents. A byte order mark and the CR of a CR LF belong to no line.
    An interchange without documents yields no messages and is no failure. A bad line is suspended alone, unless
    ``recoverable`` is false: then it fails the interchange.
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
    """An interchange that is one XML document, or with ``split`` an envelope around several.

    ``promote`` maps properties to XPaths that select an element without children, an attribute or a text; prefixes
    are those of ``namespaces``. BTS.MessageType is the root's namespace, '#' and name. Selecting nothing, an
    element with ``xsi:nil``, or (except for a str property) an empty one promotes nothing; selecting several nodes
    fails the document.

    Without ``split`` the body is the interchange, byte for byte. With it, each element that the XPath ``split``
    selects becomes a message of its own: the element written as UTF-8 together with the namespaces declared around
    it, and ``promote`` sees that element as the root. The root that ``split`` begins with, with neither elements nor
    text in it, is an empty envelope and yields no messages; anything else of which ``split`` selects nothing is a
    failure, as is an empty interchange. All documents or none are published. DOCTYPE is refused.
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
    """XML whose message types are known by their schemas (``schemas = app.schemas("schemas")``).

    What is promoted, which fields are distinguished and which roots are envelopes is what the schemas say. Envelopes
    are opened, up to 16 in each other, and every document in them becomes a message of its own. A document without a
    schema is a failure, unless ``allow_unrecognized``: then it passes as it is, with its message type and nothing else.
    What is no XML is a failure always. With ``recoverable`` a bad document of an envelope is suspended alone. DOCTYPE
    is refused.
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
            found.append("There are no schemas, so that every message would be refused.")
        return found


def _frozen(header: bool | Sequence[str]) -> bool | tuple[str, ...]:
    return header if isinstance(header, bool) else tuple(header)


class Csv(Promoting):
    """Rows of delimited text (RFC 4180); each row becomes a message that can be read alone.

    ``promote`` maps properties to columns. ``header=True``: the first row names the columns, and the body of a
    message is that header line followed by the row; a list of names: the interchange has no header, and the body is
    the row; ``False``: the columns have no names, and nothing can be promoted. Bodies are in the interchange's own
    bytes and line ends, so that each is an interchange of the same format with one row.

    A field that is empty and not quoted is absent. A quoted field may contain delimiters, line ends and doubled
    quotes; a quote elsewhere is malformed (``quote=None``: quotes mean nothing). A row has as many fields as there
    are columns. Blank lines are no rows. A bad row is suspended alone, unless ``recoverable`` is false; a header
    that lacks a promoted column fails the interchange. An interchange without rows yields no messages and is no
    failure.
    """

    kind: Literal["csv"] = "csv"
    content_type: ClassVar[str] = "text/csv"
    delimiter: str = ","
    quote: str | None = '"'
    header: Annotated[bool | Sequence[str], AfterValidator(_frozen)] = True
    encoding: str = "utf-8"
    message_type: str | None = None
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + csv_format.problems(self) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)


def _line_end(end: str) -> str:
    return "\n" if end == "\r\n" else end


class FlatFile(Promoting):
    """Records of fields, delimited or positional, perhaps after a header and before a trailer (RCV-11).

    Each record becomes a document of ``message_type`` (a namespace, # and a name, or a name): in XML the root has that
    name, and in it stands an element for each field, without a namespace; ``output="json"`` makes an object of it. The
    header and the trailer are taken off; they have to be there where they are defined. ``promote`` maps properties to
    fields of the record, and to those of the header (``header.sender``), which are promoted to every document.
    ``count`` names the field of the trailer that has the number of records; if it is another number, nothing is
    published.

    A record may be followed by others that belong to it, such as the lines of an order: ``lines`` names them, and gives
    their layouts. All of them and the record have tags, and are delimited alike. Each is an element of that name after
    the record's own (in JSON, an object in a list of that name). ``count`` counts them, too.

    Records end with LF or CR LF, or with another character, ``end``. Empty lines are no records. A bad record is
    suspended alone, unless ``recoverable`` is false: as an interchange of its own, with the header and the trailer
    around it.
    """

    kind: Literal["flat-file"] = "flat-file"
    content_type: ClassVar[str] = "text/plain"
    message_type: str
    record: Layout
    lines: Mapping[str, Layout] = Field(default_factory=dict)
    header: Layout | None = None
    trailer: Layout | None = None
    count: str | None = None
    end: Annotated[str, AfterValidator(_line_end)] = "\n"
    encoding: str = "utf-8"
    output: Literal["xml", "json"] = "xml"
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    @property
    def document_type(self) -> str:
        """The media type of its documents, which is not that of the interchange."""
        return f"application/{self.output}"

    def problems(self) -> list[str]:
        found = super().problems() + flat_layout.problems(self) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)


class FlatDocument(FlatFile):
    """Reads one document that such records become, when it comes again alone. Never stored."""


#: The pipelines that are one disassembler; ``kind`` tells which.
Format = PassThrough | Json | JsonLines | Xml | XmlReceive | Csv | FlatFile

#: The same, as a field of what is stored.
StoredFormat = Annotated[Format, Field(discriminator="kind")]


def limit_problems(bad_documents: int | None) -> list[str]:
    """What is wrong with a limit on bad documents; None is no limit."""
    if bad_documents is None or bad_documents >= 0:
        return []
    return [f"bad_documents is {bad_documents}, but must be 0 or more."]


def type_problems(message_type: str | None) -> list[str]:
    """What is wrong with a message type that a definition gives to all its messages."""
    if message_type is None:
        return []
    if not message_type:
        return ["The message type is empty; leave it out for messages without a type."]
    try:
        BTS.MessageType.check(message_type)
    except BadValue as error:
        return [error.what]
    return []
