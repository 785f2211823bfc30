"""Reading XML that a stranger sent: no DTD, no entities, no network, no other files, bounded depth and text size."""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Any

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.pipelines.documents.node_limit import XML_MARKS, refuse_many_nodes

#: What may stand before a DOCTYPE, in the first bytes of a document: the XML declaration, comments, instructions.
_HEAD = 64 << 10
_DOCTYPE = re.compile(rb"(?:\s|<\?(?:(?!\?>).)*\?>|<!--(?:(?!-->).)*-->)*<!DOCTYPE", re.DOTALL)
_POSITION = re.compile(r",? line \d+, column \d+$")
_ADVICE = re.compile(r",?\s+(?:see xml|use XML_|try XML_)\S*(?: option)?\s*")


class _RefuseToLoad(etree.Resolver):
    """The parser options keep libxml2 from loading anything; this is for a version of it that thinks otherwise."""

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        raise _no_doctype(f"It refers to {system_url!r}.")


def read_tree(document: bytes) -> etree._Element:
    """The root of a document, or PipelineFailure."""
    refuse_many_nodes(document, XML_MARKS)
    try:
        root = etree.fromstring(document, _parser(threading.get_ident()))
    except etree.XMLSyntaxError as error:
        raise _malformed(document, error) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise _no_doctype("It declares one.")
    return root


def write_document(element: etree._Element) -> bytes:
    """An element of an envelope as a document of its own, with the namespaces that are declared around it."""
    return etree.tostring(element, encoding="UTF-8", with_tail=False)


@lru_cache(maxsize=64)
def _parser(thread: int) -> etree.XMLParser:
    """Made once for each thread: making one takes as long as reading a small document."""
    # Not collect_ids=False: with it libxml2 loads external DTDs and parameter entities in spite of everything else.
    parser = etree.XMLParser(
        attribute_defaults=False,
        dtd_validation=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        resolve_entities=False,
    )
    parser.resolvers.add(_RefuseToLoad())
    return parser


def _malformed(document: bytes, error: etree.XMLSyntaxError) -> PipelineFailure:
    """Why it cannot be read, without what libxml2 says to programmers."""
    if _DOCTYPE.match(document[:_HEAD].removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"").lstrip(b"\xff\xfe")):
        return _no_doctype("It declares one.")
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
            f"The document has a piece that is too long, {what}",
            why="A text, an attribute and a name of an element may have 10,000,000 bytes.",
            hint="Send large content in several elements, or receive it with the PassThrough pipeline.",
        )
    return PipelineFailure(
        f"The document is not well-formed XML {what}", why=f"{why}.", hint="Correct the document and send it again."
    )


def _no_doctype(why: str) -> PipelineFailure:
    return PipelineFailure("The document has a DOCTYPE, which is refused.", why=why, hint="Send it without a DOCTYPE.")
