"""Promotion from XML: the message type from the root, and the properties from what their XPaths select."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lxml import etree

from postroom.errors import BadValue, PipelineFailure
from postroom.pipelines.promote import cannot_promote, promote_text
from postroom.pipelines.promotions import Promotions
from postroom.pipelines.xml_path import compile_inside, compile_path
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import Value

_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"


class XmlPromotion:
    """Reads the promoted values out of a document, in the order of the promotions."""

    def __init__(self, promotions: Promotions, namespaces: Mapping[str, str]) -> None:
        self._columns = [(prop, path, compile_path(path, namespaces)) for prop, path in promotions.entries]
        inside = [(prop, path, compile_inside(path, namespaces)) for prop, path in promotions.entries]
        self._inside = [(prop, path, xpath) for prop, path, xpath in inside if xpath is not None]

    def values(self, root: etree._Element) -> list[Value | None]:
        tree = root.getroottree()
        return [
            promote_text(prop, text_of(select(prop, path, xpath, tree)), path=path)
            for prop, path, xpath in self._columns
        ]

    def values_inside(self, element: etree._Element) -> list[Value | None] | None:
        """What ``values`` would give for this element of an envelope if it were read alone (ADR 0130); None if only
        reading it can tell that, or what is wrong with it."""
        if len(self._inside) < len(self._columns):
            return None
        try:
            return [
                promote_text(prop, text_of(select(prop, path, xpath, element)), path=path)
                for prop, path, xpath in self._inside
            ]
        except PipelineFailure:
            return None


def select(
    prop: Property, path: str, xpath: etree.XPath, begin: etree._Element | etree._ElementTree
) -> str | etree._Element | None:
    """The one node that a path selects from where it begins: a text, or an element without others in it."""
    try:
        nodes: Any = xpath(begin)
    except etree.XPathError as error:
        raise cannot_promote(prop, path, f"The XPath failed: {error}.") from None
    if not nodes:
        return None
    if len(nodes) > 1:
        raise cannot_promote(prop, path, f"It selects {len(nodes)} nodes, and a property has one value.")
    node = nodes[0]
    if isinstance(node, str):
        return node
    if not isinstance(node, etree._Element) or not isinstance(node.tag, str):
        raise cannot_promote(prop, path, "It selects neither an element, nor an attribute, nor a text.")
    if len(node) and any(isinstance(child.tag, str) for child in node):
        raise cannot_promote(prop, path, "The element contains other elements.")
    return node


def text_of(node: str | etree._Element | None) -> str | None:
    """The text of what was selected; None if it is not there, or nil."""
    if node is None or isinstance(node, str):
        return node
    if node.get(_NIL, "").strip() in ("true", "1"):
        return None
    if not len(node):
        return node.text or ""
    # Comments inside divide the text.
    return "".join([node.text or "", *(child.tail or "" for child in node)])


def xml_promotion(promotions: Promotions, namespaces: tuple[tuple[str, str], ...]) -> XmlPromotion:
    """The compiled form."""
    return _compiled(promotions, namespaces, threading.get_ident())


# For each thread: a path that is at work is locked, and a thread that was left behind in one would keep others waiting.
@lru_cache(maxsize=256)
def _compiled(promotions: Promotions, namespaces: tuple[tuple[str, str], ...], thread: int) -> XmlPromotion:
    return XmlPromotion(promotions, dict(namespaces))


def message_type_of(root: etree._Element) -> str:
    """The namespace, '#' and the name of the root; just the name where there is no namespace (TYP-01)."""
    return _type_of_tag(str(root.tag))


# An interchange has many roots of the same name; a bad one raises, and is not kept.
@lru_cache(maxsize=1024)
def _type_of_tag(tag: str) -> str:
    name = etree.QName(tag)
    message_type = f"{name.namespace}#{name.localname}" if name.namespace else name.localname
    try:
        BTS.MessageType.check(message_type)
    except BadValue as error:
        raise PipelineFailure(
            "The message type cannot be promoted.", why=error.what, hint="Send a root with a shorter namespace."
        ) from None
    return message_type
