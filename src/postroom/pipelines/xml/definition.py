"""The receive pipelines for XML: by XPaths, and by schemas.

pipelines.Xml(promote={Region: "/o:order/o:region"}, namespaces={"o": "urn:orders"}, split="/*/o:order")
pipelines.XmlReceive(schemas=app.schemas("schemas"))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.pipelines.definition import (
    BAD_DOCUMENTS,
    Disassemble,
    Format,
    Promoting,
    limit_problems,
    strip_byte_order_mark,
)
from postroom.properties import Property
from postroom.schemas import Schemas
from postroom.system_properties import BTS
from postroom.values import Value


class Xml(Promoting, Format):
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

    def target_problems(self, target: str) -> list[str]:
        return [] if self.split is None else ["it has a split; a map returns one message."]

    def can_read(self, head: bytes) -> bool:
        return strip_byte_order_mark(head).startswith(b"<")

    def make_resumed_reader(self, *, received: bool) -> Xml:
        return self.model_copy(update={"split": None})  # the document has no envelope any more

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.xml.document import disassemble

        return partial(disassemble, self)


class XmlReceive(Format):
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

    def target_problems(self, target: str) -> list[str]:
        if not len(self.schemas) or self.allow_unrecognized:
            return []
        schema = self.schemas.find(target)
        if schema is None:
            return [f"there is no schema for the target, {target!r}."]
        return [f"the target {target!r} is an envelope, but the result of a map is one message."] * schema.envelope

    def can_read(self, head: bytes) -> bool:
        return strip_byte_order_mark(head).startswith(b"<")

    def select_external_values(self, body: bytes, values: Mapping[str, Value]) -> Mapping[str, Value]:
        # Only reading it without its envelopes shows which values come from them.
        in_document = self._read_values(body)
        return {
            key: value for key, value in values.items() if key != BTS.MessageType.key and in_document.get(key) != value
        }

    def _read_values(self, body: bytes) -> Mapping[str, Value]:
        """Return the values that a document itself has, or none if it cannot be read. Its resume then reports the
        failure."""
        from postroom.pipelines.documents.disassembled_batch import BatchSize
        from postroom.pipelines.documents.message_batch import strip_zeros

        try:
            batches = list(self.disassembler(Bytes(body), BatchSize(rows=1, bytes=1)))
        except PipelineFailure:
            return {}
        rows = [row for batch in batches for row in batch.messages.to_pylist()]
        return {name: strip_zeros(value) for name, value in rows[0].items()} if rows else {}

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.xml.receive import disassemble

        return partial(disassemble, self)
