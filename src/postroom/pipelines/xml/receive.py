"""Disassembles XML by its schemas: envelopes are opened, and every document becomes a message (RCV-09, RCV-10).

A document gets the properties of its own schema and of the envelopes around it. If two define the same property, the
inner one is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple
from xml.parsers import expat

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.documents.disassembled_batch import (
    BadDocument,
    BatchSize,
    DisassembledBatch,
    Document,
    WrittenDocuments,
    add_document_number,
    build_batch,
    build_batches,
    read_whole,
)
from postroom.pipelines.xml.definition import XmlReceive
from postroom.pipelines.xml.path import compile_path
from postroom.pipelines.xml.promotion import IsSelfClosed, compile_schema_promotion, get_message_type
from postroom.pipelines.xml.tree import read_tree, write_document
from postroom.schemas import Schema
from postroom.values import Value

#: The maximum depth of nested envelopes. Each one is parsed again, so depth costs as much as size.
MAX_ENVELOPES = 16
_DECLARATION = re.compile(r"\s*<\?xml[^>]*\?>")


class _Element(NamedTuple):
    """An element of the interchange, with the properties of the envelopes around it."""

    element: etree._Element
    inherited: Mapping[str, Value]
    #: False while it may be an envelope itself.
    is_document: bool = False


def disassemble(pipeline: XmlReceive, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message, or one for each document of an envelope."""
    content = read_whole(body, "XML document")
    if not content:
        yield _empty_message(pipeline)
        return
    root = read_tree(content)
    closed = SelfClosed(content, root)
    schema = _find_schema(pipeline, root)
    if schema is None or not schema.envelope:
        values = (
            {}
            if schema is None
            else compile_schema_promotion(schema).values(root, _self_closed_check(closed, root, lambda: 0))
        )
        yield build_batch(pipeline.promotes, _make_document(pipeline, 1, content, root, values))
    else:
        written = WrittenDocuments()
        documents = _open_envelope(pipeline, root, closed, written)
        yield from build_batches(pipeline.promotes, documents, size, written)


def _empty_message(pipeline: XmlReceive) -> DisassembledBatch:
    """Return a message with an empty body. It is unrecognised like every message without a schema (TYP-04)."""
    if not pipeline.allow_unrecognized:
        raise PipelineFailure(
            "The interchange is empty.",
            why="An empty interchange has no message type and therefore no schema.",
            hint="Send an XML document, or set allow_unrecognized.",
        )
    return build_batch(pipeline.promotes, Document(1, b"", [None] * len(pipeline.promotes), None))


def _open_envelope(
    pipeline: XmlReceive, root: etree._Element, closed: SelfClosed, written: WrittenDocuments
) -> Iterator[Document | BadDocument]:
    documents = _find_documents(pipeline, root, closed)
    positions = _Positions(root, documents)
    for number, found in enumerate(documents, 1):
        document = write_document(found.element)
        try:
            # Parse it again as a subscriber will: alone, with this element as its root.
            alone = read_tree(document)
            schema = _find_schema(pipeline, alone)
            own = _self_closed_check(closed, alone, positions.first(found.element))
            values = {} if schema is None else compile_schema_promotion(schema).values(alone, own)
            offset = written.store(document)
            yield _make_document(pipeline, number, document, alone, {**found.inherited, **values}, offset)
        except PipelineFailure as failure:
            failure = add_document_number(number, failure)
            # The values are those that its envelopes would have promoted to it.
            yield BadDocument(number=number, body=document, failure=failure, values=found.inherited)


def _find_documents(pipeline: XmlReceive, root: etree._Element, closed: SelfClosed) -> list[_Element]:
    """Return the documents of an envelope, in order.

    Envelopes are opened level by level, and the trees of one level are freed before the next. The trees of all levels
    together would take many times the size of the interchange."""
    found = [_Element(root, {})]
    for depth in count(1):
        positions = _Positions(root, found)
        inside: list[_Element] = []
        for element in found:
            if element.is_document:
                inside.append(element)
                continue
            schema = pipeline.schemas.find(get_message_type(element.element))
            if schema is None or not schema.envelope:
                inside.append(_Element(element.element, element.inherited, True))
                continue
            if depth > MAX_ENVELOPES:
                raise PipelineFailure(
                    f"More than {MAX_ENVELOPES} envelopes are nested.",
                    why="Every nested envelope is parsed again, so their depth has a limit.",
                    hint="Send the documents in fewer envelopes.",
                )
            values, holders = _read_envelope(schema, element.element, closed, positions)
            inherited = {**element.inherited, **values}
            inside += [_Element(child, inherited) for holder in holders for child in _read_children(schema, holder)]
        found = inside
        if all(element.is_document for element in found):
            break
    return found


def _read_envelope(
    schema: Schema, element: etree._Element, closed: SelfClosed, positions: _Positions
) -> tuple[Mapping[str, Value], Sequence[etree._Element]]:
    """Return the properties that an envelope gives to its documents, and the elements that contain the documents."""
    # Paths start at the root, so a nested envelope has to be parsed as a document of its own.
    alone = element if element.getparent() is None else read_tree(write_document(element))
    values = compile_schema_promotion(schema).values(alone, _self_closed_check(closed, alone, positions.first(element)))
    selected = _select_body(schema, alone)
    if alone is element:
        return values, selected
    wanted = set(selected)
    original = {copy: own for copy, own in zip(alone.iter("*"), element.iter("*"), strict=True) if copy in wanted}
    return values, [original[copy] for copy in selected]


def _read_children(schema: Schema, holder: etree._Element) -> Iterator[etree._Element]:
    if any(text and text.strip() for text in (holder.text, *(child.tail for child in holder))):
        raise PipelineFailure(
            f"The body of the envelope {schema.message_type!r} has text between its documents.",
            why="The documents of an envelope are elements; this text would be lost.",
            hint="Correct the envelope, or the body_xpath of its schema.",
        )
    return holder.iterchildren(tag=etree.Element)


def _select_body(schema: Schema, envelope: etree._Element) -> list[etree._Element]:
    assert schema.body is not None, "an envelope without a body is a problem of the definition"
    selected: Any = compile_path(schema.body, {})(envelope.getroottree())
    if not selected:
        raise PipelineFailure(
            f"The envelope {schema.message_type!r} has no body.",
            why=f"{schema.body} selects nothing in it.",
            hint="Send an envelope of the expected form, or correct the body_xpath of its schema.",
        )
    return list(selected)


def _find_schema(pipeline: XmlReceive, root: etree._Element) -> Schema | None:
    """Return the schema of a document, or None if unrecognised documents are allowed (TYP-03)."""
    message_type = get_message_type(root)
    schema = pipeline.schemas.find(message_type)
    if schema is None and not pipeline.allow_unrecognized:
        raise PipelineFailure(
            f"There is no schema for the message type {message_type!r}.",
            why="This pipeline accepts only messages that have a schema.",
            hint="Add the schema to the application, or set allow_unrecognized.",
        )
    return schema


class _Positions:
    """The positions of some elements among all elements of the interchange, computed on demand. Only these elements are
    referenced, because a Python object per element takes more memory than libxml2 needs for it."""

    def __init__(self, root: etree._Element, found: Sequence[_Element]) -> None:
        self._root = root
        self._found = found

    def first(self, element: etree._Element) -> Callable[[], int]:
        return lambda: self._positions[element]

    @cached_property
    def _positions(self) -> Mapping[etree._Element, int]:
        wanted = {element.element for element in self._found}
        return {element: position for position, element in enumerate(self._root.iter("*")) if element in wanted}


def _self_closed_check(closed: SelfClosed, root: etree._Element, first: Callable[[], int]) -> IsSelfClosed:
    """Return the check for a document whose root is the element at the position ``first`` of the interchange."""

    def is_self_closed(element: etree._Element) -> bool:
        inside = next(index for index, node in enumerate(root.iter("*")) if node is element)
        return closed.has(first() + inside)

    return is_self_closed


def _make_document(
    pipeline: XmlReceive,
    number: int,
    body: bytes,
    root: etree._Element,
    values: Mapping[str, Value],
    offset: int = 0,
) -> Document:
    columns = [values.get(prop.key) for prop in pipeline.promotes]
    return Document(number, body, columns, get_message_type(root), offset, root)


class SelfClosed:
    """The self-closed elements of a document. It is parsed for them on the first call of ``has``.

    A tree does not distinguish ``<f/>`` from ``<f></f>``, but only the first form means its default value (CTX-14)."""

    def __init__(self, content: bytes, root: etree._Element) -> None:
        self._content = content
        self._root = root

    def has(self, position: int) -> bool:
        """Return True if the element at this position among all elements is written self-closed."""
        return bool(self._flags[position])

    @cached_property
    def _flags(self) -> bytes:
        """One byte per element, which takes less memory than a set of positions."""
        text = self._decode_text().removeprefix("\ufeff")
        content = text[match.end() if (match := _DECLARATION.match(text)) else 0 :].encode()
        flags = bytearray()
        open_elements: list[int] = []

        def start(name: str, attributes: object) -> None:
            open_elements.append(len(flags))
            flags.append(False)

        def end(name: str) -> None:
            position = open_elements.pop()
            # The end event of <f/> is reported after the tag, that of <f></f> before </f>.
            at = parser.CurrentByteIndex
            if content[at - 2 : at] == b"/>":
                flags[position] = True

        parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.Parse(content, True)
        return bytes(flags)

    def _decode_text(self) -> str:
        encoding = self._root.getroottree().docinfo.encoding or "UTF-8"
        try:
            return self._content.decode(encoding)
        except (LookupError, UnicodeDecodeError) as error:
            # libxml2 accepts encodings and byte sequences that Python does not.
            raise PipelineFailure(
                f"The default values of empty elements cannot be determined in the encoding {encoding!r}.",
                why=f"{error}.",
                hint="Send the document in UTF-8.",
            ) from None
