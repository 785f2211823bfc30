"""Reading XML that a stranger sent: no DTD, no entities, no network, no other files, bounded depth and text size."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

from lxml import etree

from postroom.errors import PipelineFailure


class _RefuseToLoad(etree.Resolver):
    """The parser options keep libxml2 from loading anything; this is for a version of it that thinks otherwise."""

    def resolve(self, system_url: str, public_id: str, context: Any) -> Any:  # type: ignore[override]
        raise _no_doctype(f"It refers to {system_url!r}.")


def read_tree(document: bytes) -> etree._Element:
    """The root of a document, or PipelineFailure."""
    try:
        root = etree.fromstring(document, _parser(threading.get_ident()))
    except etree.XMLSyntaxError as error:
        raise PipelineFailure(
            f"The document is not well-formed XML at line {error.lineno or 1}, column {error.offset or 1}.",
            why=(error.msg or "").strip(),
            hint="Correct the document and send it again.",
        ) from None
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


def _no_doctype(why: str) -> PipelineFailure:
    return PipelineFailure("The document has a DOCTYPE, which is refused.", why=why, hint="Send it without a DOCTYPE.")
