"""Promotes from XML: the message type from the root, and the properties from the nodes that XPaths select.

The XPaths are those of a pipeline, or those of the fields that the schema of a document names (CTX-08 … CTX-16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

from lxml import etree

from postroom.errors import BadValue, PipelineFailure
from postroom.pipelines.promotions import Promotions, promote_text, promotion_failure
from postroom.pipelines.xml.path import cache_per_thread, compile_path, parse_named_steps
from postroom.properties import Property
from postroom.schemas import PromotedField, Schema
from postroom.schemas.xsd_types import parse_value
from postroom.system_properties import BTS
from postroom.values import Value, ValueType, check_promoted, check_value

_FindDocument = Callable[[etree._Element], etree._Element | None]

NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
#: Returns True if an element of the document is written self-closed.
IsSelfClosed = Callable[[etree._Element], bool]


class XmlPromotion:
    """Reads the promoted values of a document, in the order of the promotions."""

    def __init__(self, promotions: Promotions, namespaces: Mapping[str, str]) -> None:
        self._columns = [(prop, path, compile_path(path, namespaces)) for prop, path in promotions.entries]
        self._steps = [parse_named_steps(path, namespaces) for _, path in promotions.entries]
        self._attributes = [None if steps is None else steps.attribute for steps in self._steps]
        #: By the tag at the end of a path: the columns that it belongs to, and how to find the document.
        self._by_tag: dict[str, list[tuple[int, _FindDocument]]] = {}
        for column, steps in enumerate(self._steps):
            if steps is not None:
                self._by_tag.setdefault(steps.tag, []).append((column, steps.find_document))

    def values(self, root: etree._Element) -> list[Value | None]:
        tree = root.getroottree()
        return [
            promote_text(prop, get_text(select(prop, path, xpath, tree)), path=path)
            for prop, path, xpath in self._columns
        ]

    def values_inside(
        self, envelope: etree._Element, documents: Sequence[etree._Element]
    ) -> Iterator[list[Value | None] | None]:
        """Yield the result of ``values`` for each of these documents, without parsing it outside the envelope. Yield
        None for a document that has to be parsed alone, because it may be bad or the result is not certain."""
        if None in self._steps:
            yield from repeat(None, len(documents))
            return
        uncertain: set[int] = set()
        nodes = self._find_nodes_inside(envelope, documents, uncertain)
        columns = [self._read_column_inside(column, nodes[column], uncertain) for column in range(len(nodes))]
        for number in range(len(documents)):
            yield None if number in uncertain else [column[number] for column in columns]

    def _find_nodes_inside(
        self, envelope: etree._Element, documents: Sequence[etree._Element], uncertain: set[int]
    ) -> list[list[etree._Element | None]]:
        """Return the elements that the paths select: a column for each path, a row for each document. A document in
        which a path selects several nodes is added to ``uncertain``. One pass over the envelope is faster than one
        XPath per document and property."""
        columns: list[list[etree._Element | None]] = [[None] * len(documents) for _ in self._steps]
        rows: dict[etree._Element | None, int] = {document: row for row, document in enumerate(documents)}
        for node in envelope.iter(*self._by_tag) if self._by_tag else ():
            for column, find_document in self._by_tag[node.tag]:
                row = rows.get(find_document(node))
                if row is None:
                    continue
                if columns[column][row] is not None:
                    uncertain.add(row)
                columns[column][row] = node
        return columns

    def _read_column_inside(
        self, column: int, nodes: Sequence[etree._Element | None], uncertain: set[int]
    ) -> list[Value | None]:
        """Return the values of a column. Documents with a value that cannot be promoted are added to ``uncertain``."""
        prop, path, _ = self._columns[column]
        attribute = self._attributes[column]
        values: list[Value | None] = [None] * len(nodes)
        for row, node in enumerate(nodes):
            if node is not None:
                try:
                    values[row] = promote_text(prop, _read_text(prop, path, attribute, node), path=path)
                except PipelineFailure:
                    uncertain.add(row)
        return values


def select(
    prop: Property, path: str, xpath: etree.XPath, start: etree._Element | etree._ElementTree
) -> str | etree._Element | None:
    """Return the single node that a path selects: a text, or an element without child elements. None if there is
    none."""
    try:
        nodes: Any = xpath(start)
    except etree.XPathError as error:
        raise promotion_failure(prop, path, f"The XPath failed: {error}.") from None
    if not nodes:
        return None
    if len(nodes) > 1:
        raise promotion_failure(prop, path, f"It selects {len(nodes)} nodes, but a property has one value.")
    node = nodes[0]
    if isinstance(node, str):
        return node
    if not isinstance(node, etree._Element) or not isinstance(node.tag, str):
        raise promotion_failure(prop, path, "It selects neither an element, nor an attribute, nor a text.")
    return _check_no_children(prop, path, node)


def _check_no_children(prop: Property, path: str, node: etree._Element) -> etree._Element:
    if len(node) and any(isinstance(child.tag, str) for child in node):
        raise promotion_failure(prop, path, "The element has child elements.")
    return node


def _read_text(prop: Property, path: str, attribute: str | None, node: etree._Element) -> str | None:
    """Return the text of this element, or of its attribute."""
    if attribute is not None:
        return node.get(attribute)
    if not len(node) and not node.keys():
        return node.text or ""  # the common case
    return get_text(_check_no_children(prop, path, node))


def get_text(node: str | etree._Element | None) -> str | None:
    """Return the text of a selected node. None if there is no node, or if it is nil."""
    if node is None or isinstance(node, str):
        return node
    if node.get(NIL, "").strip() in ("true", "1"):
        return None
    if not len(node):
        return node.text or ""
    # Comments divide the text.
    return "".join([node.text or "", *(child.tail or "" for child in node)])


@cache_per_thread
def compile_xml_promotion(promotions: Promotions, namespaces: tuple[tuple[str, str], ...]) -> XmlPromotion:
    return XmlPromotion(promotions, dict(namespaces))


def get_message_type(root: etree._Element) -> str:
    """Return the namespace, '#' and the name of the root, or the name alone if there is no namespace (TYP-01)."""
    return _tag_to_message_type(str(root.tag))


# An interchange has many roots of the same name. A bad name raises, and exceptions are not cached.
@lru_cache(maxsize=1024)
def _tag_to_message_type(tag: str) -> str:
    name = etree.QName(tag)
    message_type = f"{name.namespace}#{name.localname}" if name.namespace else name.localname
    try:
        BTS.MessageType.check(message_type)
    except BadValue as error:
        raise PipelineFailure(
            "The message type cannot be promoted.", why=error.what, hint="Send a root with a shorter namespace."
        ) from None
    return message_type


class SchemaPromotion:
    """Reads the values of the fields that a schema names."""

    def __init__(self, schema: Schema) -> None:
        self._promoted = [(field, field.property, compile_path(field.path, {})) for field in schema.promoted]
        self._written = [(field, field.property, compile_path(field.path, {})) for field in schema.distinguished]

    def values(self, root: etree._Element, is_self_closed: IsSelfClosed) -> dict[str, Value]:
        """Return the values by property key. An absent field has no entry (CTX-13)."""
        values: dict[str, Value] = {}
        for field, prop, xpath in self._promoted:
            text = _read_field(prop, field.path, field.default, xpath, root, is_self_closed)
            value = None if text is None else _to_value(field, prop, text)
            if value is not None:
                values[prop.key] = value
        for written, prop, xpath in self._written:
            text = _read_field(prop, written.path, written.default, xpath, root, is_self_closed)
            if text is not None:
                values[prop.key] = check_value(ValueType.STR, text)
        return values


@cache_per_thread
def compile_schema_promotion(schema: Schema) -> SchemaPromotion:
    return SchemaPromotion(schema)


def _read_field(
    prop: Property,
    path: str,
    default: str | None,
    xpath: etree.XPath,
    root: etree._Element,
    is_self_closed: IsSelfClosed,
) -> str | None:
    node = select(prop, path, xpath, root)
    text = get_text(node)
    if text == "" and default is not None and not isinstance(node, str | None) and is_self_closed(node):
        return default
    return text


def _to_value(field: PromotedField, prop: Property, text: str) -> Value | None:
    """Convert text to a value. Blank text is a value of a str property only."""
    if prop.value_type is not ValueType.STR and not text.strip():
        return None
    try:
        return check_promoted(parse_value(field.form, prop.value_type, text))
    except BadValue as error:
        raise promotion_failure(prop, field.path, error.what, error.hint) from None
