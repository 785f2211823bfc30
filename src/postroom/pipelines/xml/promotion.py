"""Promotion from XML: the message type from the root, and the properties from what their XPaths select."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

from lxml import etree

from postroom.errors import BadValue, PipelineFailure
from postroom.pipelines.promote import cannot_promote, promote_text
from postroom.pipelines.promotions import Promotions
from postroom.pipelines.xml.path import compile_path, named_steps
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import Value

_DocumentOf = Callable[[etree._Element], etree._Element | None]

_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"


class XmlPromotion:
    """Reads the promoted values out of a document, in the order of the promotions."""

    def __init__(self, promotions: Promotions, namespaces: Mapping[str, str]) -> None:
        self._columns = [(prop, path, compile_path(path, namespaces)) for prop, path in promotions.entries]
        self._steps = [named_steps(path, namespaces) for _, path in promotions.entries]
        self._attributes = [None if steps is None else steps.attribute for steps in self._steps]
        #: By the tag of the elements that paths end at: for which columns these are, and in which document.
        self._by_tag: dict[str, list[tuple[int, _DocumentOf]]] = {}
        for column, steps in enumerate(self._steps):
            if steps is not None:
                self._by_tag.setdefault(steps.tag, []).append((column, steps.document_of))

    def values(self, root: etree._Element) -> list[Value | None]:
        tree = root.getroottree()
        return [
            promote_text(prop, text_of(select(prop, path, xpath, tree)), path=path)
            for prop, path, xpath in self._columns
        ]

    def values_inside(
        self, envelope: etree._Element, documents: Sequence[etree._Element]
    ) -> Iterator[list[Value | None] | None]:
        """What ``values`` would give for each of these elements of an envelope, in their order, if it were read alone;
        None if only reading it can tell that, or what is wrong with it."""
        if None in self._steps:
            yield from repeat(None, len(documents))
            return
        uncertain: set[int] = set()
        nodes = self._found_inside(envelope, documents, uncertain)
        columns = [self._read_inside(column, nodes[column], uncertain) for column in range(len(nodes))]
        for number in range(len(documents)):
            yield None if number in uncertain else [column[number] for column in columns]

    def _found_inside(
        self, envelope: etree._Element, documents: Sequence[etree._Element], uncertain: set[int]
    ) -> list[list[etree._Element | None]]:
        """The elements that the paths select, a column for each path and a row for each document; documents in which
        one selects several are ``uncertain``. Walking once through the envelope is faster than asking each document for
        each path."""
        columns: list[list[etree._Element | None]] = [[None] * len(documents) for _ in self._steps]
        rows: dict[etree._Element | None, int] = {document: row for row, document in enumerate(documents)}
        for node in envelope.iter(*self._by_tag) if self._by_tag else ():
            for column, document_of in self._by_tag[node.tag]:
                row = rows.get(document_of(node))
                if row is None:
                    continue
                if columns[column][row] is not None:
                    uncertain.add(row)
                columns[column][row] = node
        return columns

    def _read_inside(
        self, column: int, nodes: Sequence[etree._Element | None], uncertain: set[int]
    ) -> list[Value | None]:
        """The values of a column. Documents that have none that can be promoted are ``uncertain``."""
        prop, path, _ = self._columns[column]
        attribute = self._attributes[column]
        values: list[Value | None] = [None] * len(nodes)
        for row, node in enumerate(nodes):
            if node is not None:
                try:
                    values[row] = promote_text(prop, _text_at(prop, path, attribute, node), path=path)
                except PipelineFailure:
                    uncertain.add(row)
        return values


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
    return _without_others(prop, path, node)


def _without_others(prop: Property, path: str, node: etree._Element) -> etree._Element:
    if len(node) and any(isinstance(child.tag, str) for child in node):
        raise cannot_promote(prop, path, "The element contains other elements.")
    return node


def _text_at(prop: Property, path: str, attribute: str | None, node: etree._Element) -> str | None:
    """The text that a path selects which ends at this element, or at an attribute of it."""
    if attribute is not None:
        return node.get(attribute)
    if not len(node) and not node.keys():
        return node.text or ""  # as nearly all are
    return text_of(_without_others(prop, path, node))


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
