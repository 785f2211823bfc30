"""Disassembles an interchange that is one XML document, or splits an envelope into several.

The documents of an envelope are copied byte for byte, if their positions in it are certain. Serializing an element
takes several times as long as copying its bytes, and the bytes are what the sender wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any

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
from postroom.pipelines.xml.definition import Xml
from postroom.pipelines.xml.path import compile_path, is_named_steps
from postroom.pipelines.xml.promotion import XmlPromotion, compile_xml_promotion, get_message_type
from postroom.pipelines.xml.tree import read_tree, write_document

#: The name of the root in an absolute path. A path with a wildcard, a predicate or a leading `//` there has none.
_ROOT = re.compile(r"\s*/\s*(?:child\s*::\s*)?(?:(?P<prefix>[\w.-]+):)?(?P<name>[\w.-]+)\s*/")
_VALUES = re.compile(rb"\"[^\"]*\"|'[^']*'")
_DECLARATIONS = re.compile(rb"\sxmlns(?::([^\s=]+))?\s*=")


def disassemble(pipeline: Xml, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message, or with ``split`` one for each document of the envelope."""
    content = read_whole(body, "XML document")
    if not content:
        raise PipelineFailure(
            "The interchange is empty.",
            why="An empty interchange is not an XML document.",
            hint="Send an XML document.",
        )
    root = read_tree(content)
    if pipeline.split is None:
        values = _promotion(pipeline).values(root)
        yield build_batch(pipeline.promotes, Document(1, content, values, get_message_type(root), root=root))
    else:
        written = WrittenDocuments()
        documents = _split(pipeline, pipeline.split, content, root, written)
        yield from build_batches(pipeline.promotes, documents, size, written)


def _split(
    pipeline: Xml, split: str, content: bytes, envelope: etree._Element, written: WrittenDocuments
) -> Iterator[Document | BadDocument]:
    elements = _select_documents(pipeline, split, envelope)
    promotion = _promotion(pipeline)
    copies = copy_documents(content, split, elements)
    inside = promotion.values_inside(envelope, elements)
    for number, (element, copy, values) in enumerate(zip(elements, copies, inside, strict=True), 1):
        position, document = copy or (None, write_document(element))
        try:
            root = element
            if values is None:
                # Parse it again as a subscriber will: alone, with this element as its root.
                root = read_tree(document)
                values = promotion.values(root)
            offset = written.store(document) if position is None else position
            yield Document(number, document, values, get_message_type(root), offset, root)
        except PipelineFailure as failure:
            yield BadDocument(number=number, body=document, failure=add_document_number(number, failure))


def _promotion(pipeline: Xml) -> XmlPromotion:
    return compile_xml_promotion(pipeline.promotions, tuple(pipeline.namespaces.items()))


def _select_documents(pipeline: Xml, split: str, envelope: etree._Element) -> list[etree._Element]:
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
    # An empty envelope is consumed without a message, so the answer must be certain.
    is_expected = envelope.tag == _root_tag(split, pipeline.namespaces)
    if not selected and (not is_expected or _has_content(envelope)):
        raise PipelineFailure(
            f"{split!r} selects nothing in this envelope.",
            why=f"The root is {get_message_type(envelope)!r}. An envelope is empty only if it has the root "
            "that the path starts with, and neither elements nor text in it.",
            hint="Send an envelope of the expected form, or correct the pipeline's split and namespaces.",
        )
    return list(selected)


def _root_tag(split: str, namespaces: Mapping[str, str]) -> str | None:
    """Return the qualified tag of the root that the path names, or None if it names none."""
    match = _ROOT.match(split)
    if match is None:
        return None
    prefix, name = match["prefix"], match["name"]
    return name if prefix is None else f"{{{namespaces[prefix]}}}{name}"


def _has_content(envelope: etree._Element) -> bool:
    # Text next to comments and processing instructions is text of the envelope.
    texts = [envelope.text, *(child.tail for child in envelope)]
    return any(isinstance(child.tag, str) for child in envelope) or any(text and text.strip() for text in texts)


def copy_documents(
    content: bytes, split: str, elements: Sequence[etree._Element]
) -> Iterator[tuple[int, bytes] | None]:
    """Yield the offset and the bytes of each element that ``split`` selects, or None if it has to be serialized."""
    positions = _find_positions(content, split, elements)
    if positions is None:
        yield from repeat(None, len(elements))
        return
    known: dict[tuple[etree._Element | None, bytes], bool] = {}
    for element, (start, end) in zip(elements, positions, strict=True):
        key = element.getparent(), content[start : content.index(b">", start)]
        if key not in known:
            known[key] = _declares_all_prefixes(*key)
        yield (start, content[start:end]) if known[key] else None


def _find_positions(content: bytes, split: str, elements: Sequence[etree._Element]) -> list[tuple[int, int]] | None:
    """Return the start and the end of each element, or None if they are not certain. In well-formed XML without
    comments, CDATA and processing instructions, every "<" starts a tag."""
    if not is_named_steps(split) or len({(element.prefix, element.tag) for element in elements}) != 1:
        return None
    if _has_other_markup(content):
        return None
    if (elements[0].getroottree().docinfo.encoding or "UTF-8").upper() != "UTF-8":
        return None
    prefix, local = elements[0].prefix, etree.QName(elements[0]).localname
    name = re.escape(f"{prefix}:{local}" if prefix else local).encode()
    starts = [match.start() for match in re.finditer(rb"<%s(?=[\s/>])" % name, content)]
    ends = [match.end() for match in re.finditer(rb"</%s\s*>" % name, content)]
    # If as many tags as elements have this name, these are all of them, in document order.
    if not len(starts) == len(ends) == len(elements):
        return None
    positions = list(zip(starts, ends, strict=True))
    if any(start > end for start, end in positions) or any(one[1] > other[0] for one, other in pairwise(positions)):
        return None
    return positions


def _has_other_markup(content: bytes) -> bool:
    """Return True if there is a "<" that starts no tag. Searching one character first is several times faster than
    two."""
    return (b"!" in content and b"<!" in content) or (
        content.find(b"?", 2) >= 0 and content.find(b"<?", content.find(b"<") + 1) >= 0
    )


def _declares_all_prefixes(parent: etree._Element | None, head: bytes) -> bool:
    """Return True if a start tag declares all prefixes of its parent again. ``head`` is the tag up to the first ">"."""
    if parent is None:
        return True
    names = _VALUES.sub(b"", head)
    if b'"' in names or b"'" in names:
        return False  # the ">" is inside a value
    declared = {prefix.decode() or None for prefix in _DECLARATIONS.findall(names)}
    return parent.nsmap.keys() <= declared
