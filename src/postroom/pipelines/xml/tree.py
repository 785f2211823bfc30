"""Parses untrusted XML: no DTD, no entities, no network, no other files, limited depth and text size."""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Any

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.pipelines.documents.node_limit import XML_MARKS, check_node_count

#: The number of bytes in which a DOCTYPE is searched. The XML declaration, comments and instructions may precede it.
_HEAD = 64 << 10
_DOCTYPE = re.compile(rb"(?:\s|<\?(?:(?!\?>).)*\?>|<!--(?:(?!-->).)*-->)*<!DOCTYPE", re.DOTALL)
_POSITION = re.compile(r",? line \d+, column \d+$")
_ADVICE = re.compile(r",?\s+(?:see xml|use XML_|try XML_)\S*(?: option)?\s*")


class _RejectingResolver(etree.Resolver):
    """Rejects external resources. The parser options do so already; this guards against another behaviour of
    libxml2."""

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        raise _doctype_failure(f"It refers to {system_url!r}.")


def read_tree(document: bytes) -> etree._Element:
    """Parse a document and return its root. Raises PipelineFailure."""
    check_node_count(document, XML_MARKS)
    try:
        root = etree.fromstring(document, _parser(threading.get_ident()))
    except etree.XMLSyntaxError as error:
        raise _malformed_failure(document, error) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise _doctype_failure("It declares one.")
    return root


def write_document(element: etree._Element) -> bytes:
    """Serialize an element of an envelope as a document, with the namespace declarations of the envelope."""
    return etree.tostring(element, encoding="UTF-8", with_tail=False)


def write_tree(root: etree._Element, *, encoding: str, declaration: bool) -> bytes:
    """Serialize a document. A character that the encoding does not have is written as a reference."""
    written = etree.tostring(root.getroottree(), encoding=encoding, xml_declaration=declaration)
    assert isinstance(written, bytes)
    return written


def can_write(encoding: str) -> bool:
    """Return True if documents can be written in this encoding."""
    try:
        return isinstance(etree.tostring(etree.Element("document"), encoding=encoding), bytes)
    except LookupError:
        return False


@lru_cache(maxsize=64)
def _parser(thread: int) -> etree.XMLParser:
    """Return the parser of a thread. It is cached, because making one takes as long as parsing a small document."""
    # Do not set collect_ids=False: libxml2 then loads external DTDs and parameter entities despite the other options.
    parser = etree.XMLParser(
        attribute_defaults=False,
        dtd_validation=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        resolve_entities=False,
    )
    parser.resolvers.add(_RejectingResolver())
    return parser


def _malformed_failure(document: bytes, error: etree.XMLSyntaxError) -> PipelineFailure:
    """Return the failure without the hints of libxml2 for programmers."""
    if _DOCTYPE.match(document[:_HEAD].removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"").lstrip(b"\xff\xfe")):
        return _doctype_failure("It declares one.")
    why = _ADVICE.sub("", _POSITION.sub("", (error.msg or "").strip())).strip()
    if "depth" in why:
        return PipelineFailure(
            "The document is nested too deeply.",
            why="It has more than 256 levels of elements.",
            hint="Send it with fewer levels.",
        )
    line, column = error.position
    what = f"at line {line or 1}, column {column or 1}."
    if "limit exceeded" in why:
        return PipelineFailure(
            f"The document has a text, attribute or name that is too long, {what}",
            why="The maximum is 10,000,000 bytes.",
            hint="Send large content in several elements, or receive it with the PassThrough pipeline.",
        )
    return PipelineFailure(
        f"The document is not well-formed XML {what}", why=f"{why}.", hint="Correct the document and send it again."
    )


def _doctype_failure(why: str) -> PipelineFailure:
    return PipelineFailure(
        "The document has a DOCTYPE, which is not allowed.", why=why, hint="Send it without a DOCTYPE."
    )
