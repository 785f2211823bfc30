"""An interchange that is one XML document, or an envelope that is split into several."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Body
from postroom.pipelines.definitions import Xml
from postroom.pipelines.documents.disassembled_batch import BatchSize, Disassembled, Rows, in_document, read_whole
from postroom.pipelines.documents.written_documents import WrittenDocuments
from postroom.pipelines.xml.path import compile_path
from postroom.pipelines.xml.promotion import XmlPromotion, message_type_of, xml_promotion
from postroom.pipelines.xml.tree import read_tree, write_document
from postroom.pipelines.xml.verbatim import verbatim

#: The name that an absolute path begins with. A wildcard, a predicate or a leading `//` names no root.
_ROOT = re.compile(r"\s*/\s*(?:child\s*::\s*)?(?:(?P<prefix>[\w.-]+):)?(?P<name>[\w.-]+)\s*/")


def disassemble(pipeline: Xml, body: Body, size: BatchSize) -> Iterator[Disassembled]:
    """One message, or with ``split`` one for each document of the envelope."""
    content = read_whole(body, "XML document")
    if not content:
        raise PipelineFailure(
            "The interchange is empty.", why="An empty interchange is no XML document.", hint="Send an XML document."
        )
    root = read_tree(content)
    if pipeline.split is None:
        rows = Rows(promotes=pipeline.promotes)
        rows.add(1, content, _promotion(pipeline).values(root), offset=0, message_type=message_type_of(root), root=root)
        yield rows.finish()
    else:
        yield from _split(pipeline, pipeline.split, content, root, size)


def _split(
    pipeline: Xml, split: str, content: bytes, envelope: etree._Element, size: BatchSize
) -> Iterator[Disassembled]:
    elements = _documents(pipeline, split, envelope)
    written = WrittenDocuments()
    promotion = _promotion(pipeline)
    rows = Rows(promotes=pipeline.promotes)
    places = verbatim(content, split, elements)
    inside = promotion.values_inside(envelope, elements)
    for number, (element, own, values) in enumerate(zip(elements, places, inside, strict=True), 1):
        place, document = own or (None, write_document(element))
        try:
            root = element
            if values is None:
                # Read again as a subscriber will: alone, with this element as its root.
                root = read_tree(document)
                values = promotion.values(root)
            offset = written.place(document) if place is None else place
            rows.add(number, document, values, offset=offset, message_type=message_type_of(root), root=root)
        except PipelineFailure as failure:
            rows.fail(number, document, in_document(number, failure))
        if rows.fills(size):
            yield rows.finish(written.body)
            rows = Rows(promotes=pipeline.promotes)
    if len(rows):
        yield rows.finish(written.body)


def _promotion(pipeline: Xml) -> XmlPromotion:
    return xml_promotion(pipeline.promotions, tuple(pipeline.namespaces.items()))


def _documents(pipeline: Xml, split: str, envelope: etree._Element) -> list[etree._Element]:
    try:
        selected: Any = compile_path(split, pipeline.namespaces)(envelope.getroottree())
    except etree.XPathError as error:
        raise PipelineFailure(
            f"The envelope cannot be split by {split!r}.", why=str(error), hint="Correct the pipeline's split."
        ) from None
    if not all(isinstance(node, etree._Element) and isinstance(node.tag, str) for node in selected):
        raise PipelineFailure(
            f"The envelope cannot be split by {split!r}.",
            why="It selects something that is not an element.",
            hint="Correct the pipeline's split.",
        )
    if not selected and not _is_empty_envelope(envelope, split, pipeline.namespaces):
        raise PipelineFailure(
            f"{split!r} selects nothing in this envelope.",
            why=f"The root is {message_type_of(envelope)!r}. Only the root that the path begins with, with neither "
            "elements nor text in it, is an empty envelope; of anything else something would be lost.",
            hint="Send an envelope of the expected form, or correct the pipeline's split and namespaces.",
        )
    return list(selected)


def _is_empty_envelope(envelope: etree._Element, split: str, namespaces: Mapping[str, str]) -> bool:
    """Return True if this is the root that ``split`` starts with and it has no content.

    An empty envelope is consumed without a message, so the answer must be certain."""
    return envelope.tag == _root_of(split, namespaces) and not _has_content(envelope)


def _root_of(split: str, namespaces: Mapping[str, str]) -> str | None:
    """Return the qualified tag of the root that the path names, or None if it names none."""
    match = _ROOT.match(split)
    if match is None:
        return None
    prefix, name = match["prefix"], match["name"]
    return name if prefix is None else f"{{{namespaces[prefix]}}}{name}"


def _has_content(envelope: etree._Element) -> bool:
    # Text beside comments and processing instructions is text of the envelope.
    texts = [envelope.text, *(child.tail for child in envelope)]
    return any(isinstance(child.tag, str) for child in envelope) or any(text and text.strip() for text in texts)
