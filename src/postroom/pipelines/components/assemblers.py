"""Assemblers for JSON and XML: they demote properties into the document, and write an envelope around it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from postroom.errors import PipelineFailure
from postroom.message import Bytes, Context, Message
from postroom.pipelines.components.contract import Assembler, get_body, replace_body
from postroom.pipelines.demotions import demotion_problems
from postroom.pipelines.json import path as json_path
from postroom.pipelines.promotions import Promote, Promotions
from postroom.properties import DistinguishedField, Property
from postroom.schemas import Schemas

if TYPE_CHECKING:
    from lxml import etree


class JsonEnvelope(BaseModel):
    """An envelope with the document as the only element of the array at the path ``body``. It is the inverse of
    ``pipelines.Json(split=...)``.

    ``content`` are the other members of the envelope. ``demote`` copies properties into it. ``body="$"`` writes an
    array without anything around it.

    components.JsonEnvelope("orders", content={"version": 2}, demote={Sender: "header.sender"})
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: str
    content: Mapping[str, Any] = Field(default_factory=dict)
    demote: Promote = Promotions()

    def __init__(self, body: str, **settings: Any) -> None:
        super().__init__(**{"body": body, **settings})

    def problems(self) -> list[str]:
        found = _json_problems(self.demote) + json_path.split_problems(self.body, what="body")
        if self.body == json_path.ROOT and (self.content or self.demote):
            found.append("The envelope is an array (body='$') and cannot have other content.")
        found += [
            f"{prop.dotted_name} is demoted into {path!r}, which overlaps with the body {self.body!r}."
            for prop, path in self.demote.items()
            if self.body != json_path.ROOT and json_path.overlaps(path, self.body)
        ]
        return found

    def wrap(self, document: bytes, context: Context) -> bytes:
        """Return the envelope with a document in it."""
        from postroom.pipelines.json.demotion import demote_json, set_value

        envelope = demote_json(json.dumps(self.content).encode(), self.demote, context)
        return set_value(envelope, json_path.parse_split(self.body), b"[%b]" % document)


class JsonAssembler(Assembler):
    """Writes a JSON document. ``demote`` maps properties to dotted paths, as ``promote`` of ``pipelines.Json`` does.

    The value of a property that the message has replaces the value at its path, and missing objects are created.
    Everything else keeps its bytes. Dates are strings in UTC, such as ``2026-01-31T12:00:00.0000000Z``.
    """

    demote: Promote = Promotions()
    envelope: JsonEnvelope | None = None

    @property
    def demotes(self) -> tuple[Property, ...]:
        return (*self.demote, *(() if self.envelope is None else self.envelope.demote))

    def problems(self) -> list[str]:
        found = _json_problems(self.demote)
        return found + [f"envelope: {text}" for text in (self.envelope.problems() if self.envelope else ())]

    def assemble(self, message: Message) -> Message:
        from postroom.pipelines.documents.disassembled_batch import read_whole
        from postroom.pipelines.json.demotion import demote_json, read_json

        document = read_json(read_whole(get_body(message).body, "document"))
        document = demote_json(document, self.demote, message.context)
        if self.envelope is not None:
            document = self.envelope.wrap(document, message.context)
        return replace_body(message, Bytes(document), content_type="application/json")


def _json_problems(demote: Mapping[Property, str]) -> list[str]:
    assert isinstance(demote, Promotions)
    return demotion_problems(demote) + json_path.problems(demote)


class XmlEnvelope(BaseModel):
    """An envelope for one document. It is the inverse of ``pipelines.Xml(split=...)``.

    ``template`` is the text of an XML document, and ``body`` the XPath of its element that the document is appended
    to. ``demote`` copies properties into the envelope. ``namespaces`` declares the prefixes of the paths.

    components.XmlEnvelope(
        "<batch><sender/><orders/></batch>", body="/batch/orders", demote={Sender: "/batch/sender"}
    )
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    template: str
    body: str
    demote: Promote = Promotions()
    namespaces: Mapping[str, str] = Field(default_factory=dict)

    def __init__(self, template: str, **settings: Any) -> None:
        super().__init__(**{"template": template, **settings})

    def problems(self) -> list[str]:
        found = _demote_problems(self.demote, self.namespaces)
        try:
            self._find_body(self._read_template())
        except PipelineFailure as failure:
            found.append(failure.join_sentences(with_hint=False))
        return found

    def wrap(self, document: etree._Element, context: Context) -> etree._Element:
        """Return the envelope with a document in it."""
        envelope = self._read_template()
        _demote(envelope, self.demote, self.namespaces, context)
        self._find_body(envelope).append(document)
        return envelope

    def _read_template(self) -> etree._Element:
        from postroom.pipelines.xml.tree import read_tree

        return read_tree(self.template.encode())

    def _find_body(self, envelope: etree._Element) -> etree._Element:
        from postroom.pipelines.xml.path import select_element

        return select_element(envelope, self.body, self.namespaces)


class XmlAssembler(Assembler):
    """Writes an XML document. ``demote`` maps properties to XPaths, as ``promote`` of ``pipelines.Xml`` does.

    The value of a property that the message has replaces the value at its path. A path that has only names creates
    missing elements, each as the last child of its parent. With ``schemas`` the promoted fields of the document's
    schema are demoted too, into nodes that exist. Dates are in UTC, such as ``2026-01-31T12:00:00.0000000Z``. The
    document is written in ``encoding``, with an XML declaration unless ``declaration`` is false.
    """

    demote: Promote = Promotions()
    namespaces: Mapping[str, str] = Field(default_factory=dict)
    schemas: Schemas | None = None
    envelope: XmlEnvelope | None = None
    declaration: bool = True
    encoding: str = "utf-8"

    @property
    def demotes(self) -> tuple[Property, ...]:
        by_schema = () if self.schemas is None else self.schemas.properties
        return (
            *self.demote,
            *(prop for prop in by_schema if not isinstance(prop, DistinguishedField)),
            *(() if self.envelope is None else self.envelope.demote),
        )

    def problems(self) -> list[str]:
        from postroom.pipelines.xml.tree import can_write

        found = _demote_problems(self.demote, self.namespaces)
        if not can_write(self.encoding):
            found.append(f"XML cannot be written in the encoding {self.encoding!r}.")
        if not self.declaration and self.encoding.lower().replace("_", "-") != "utf-8":
            found.append(f"Only UTF-8 can be read without an XML declaration, and encoding is {self.encoding!r}.")
        return found + [f"envelope: {text}" for text in (self.envelope.problems() if self.envelope else ())]

    def assemble(self, message: Message) -> Message:
        from postroom.pipelines.documents.disassembled_batch import read_whole
        from postroom.pipelines.xml.tree import read_tree, write_tree

        root = read_tree(read_whole(get_body(message).body, "document"))
        self._demote_by_schema(root, message.context)
        _demote(root, self.demote, self.namespaces, message.context)
        if self.envelope is not None:
            root = self.envelope.wrap(root, message.context)
        content = write_tree(root, encoding=self.encoding, declaration=self.declaration)
        return replace_body(message, Bytes(content), content_type="application/xml", charset=self._charset)

    @property
    def _charset(self) -> str | None:
        return None if self.encoding.lower() == "utf-8" else self.encoding

    def _demote_by_schema(self, root: etree._Element, context: Context) -> None:
        from postroom.pipelines.xml.demotion import compile_schema_demotion
        from postroom.pipelines.xml.promotion import get_message_type

        schema = None if self.schemas is None else self.schemas.find(get_message_type(root))
        if schema is not None:
            compile_schema_demotion(schema).write(root, context)


def _demote(
    root: etree._Element, demote: Mapping[Property, str], namespaces: Mapping[str, str], context: Context
) -> None:
    from postroom.pipelines.xml.demotion import compile_xml_demotion

    if demote:
        assert isinstance(demote, Promotions)
        compile_xml_demotion(demote, tuple(namespaces.items())).write(root, context)


def _demote_problems(demote: Mapping[Property, str], namespaces: Mapping[str, str]) -> list[str]:
    from postroom.pipelines.xml import path as xml_path

    assert isinstance(demote, Promotions)
    return demotion_problems(demote) + xml_path.problems(demote, namespaces, None)
