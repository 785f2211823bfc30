"""Writes the values of properties into an XML document (CTX-26).

A path that has only names from the root down creates the elements and the attribute that are missing. Another path, and
the path of a schema, must select a node that exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lxml import etree

from postroom.message import Context
from postroom.pipelines.demotions import demotion_failure, find_demoted, format_demoted
from postroom.pipelines.promotions import Promotions
from postroom.pipelines.xml.path import NamedSteps, cache_per_thread, parse_named_steps
from postroom.pipelines.xml.promotion import NIL
from postroom.properties import Property
from postroom.schemas import Schema
from postroom.schemas.xsd_types import format_date


class XmlDemotion:
    """Writes the values of a context into documents."""

    def __init__(self, demotions: Promotions, namespaces: Mapping[str, str]) -> None:
        self._demotions = demotions
        self._xpaths = {path: _compile(path, namespaces) for path in demotions.values()}
        self._steps = {path: parse_named_steps(path, namespaces) for path in demotions.values()}

    def write(self, root: etree._Element, context: Context) -> None:
        for prop, path, value in find_demoted(self._demotions, context):
            text = format_demoted(value)
            if not _write_selected(prop, path, self._xpaths[path], root, text):
                steps = self._steps[path]
                if steps is None:
                    raise demotion_failure(prop, path, "The XPath selects nothing.")
                _create(prop, path, steps, root, text)


class SchemaDemotion:
    """Writes the promoted fields of a schema into the nodes that a document has."""

    def __init__(self, schema: Schema) -> None:
        self._fields = [(field, field.property, _compile(field.path, {})) for field in schema.promoted]

    def write(self, root: etree._Element, context: Context) -> None:
        for field, prop, xpath in self._fields:
            value = context.get(prop)
            if value is not None:
                _write_selected(prop, field.path, xpath, root, format_date(field.form, value) or format_demoted(value))


@cache_per_thread
def compile_xml_demotion(demotions: Promotions, namespaces: tuple[tuple[str, str], ...]) -> XmlDemotion:
    return XmlDemotion(demotions, dict(namespaces))


@cache_per_thread
def compile_schema_demotion(schema: Schema) -> SchemaDemotion:
    return SchemaDemotion(schema)


def _compile(path: str, namespaces: Mapping[str, str]) -> etree.XPath:
    # A selected attribute or text knows its element.
    return etree.XPath(path, namespaces=dict(namespaces), smart_strings=True)


def _write_selected(prop: Property, path: str, xpath: etree.XPath, root: etree._Element, text: str) -> bool:
    """Write a text into the node that a path selects. Return False if there is none."""
    try:
        nodes: Any = xpath(root.getroottree())
    except etree.XPathError as error:
        raise demotion_failure(prop, path, f"The XPath failed: {error}.") from None
    if not nodes:
        return False
    if len(nodes) > 1:
        raise demotion_failure(prop, path, f"It selects {len(nodes)} nodes, but a property has one value.")
    node = nodes[0]
    try:
        if isinstance(node, str):
            _write_into_parent(node, text)
        elif isinstance(node, etree._Element) and isinstance(node.tag, str):
            _write_element(prop, path, node, text)
        else:
            raise demotion_failure(prop, path, "It selects neither an element, nor an attribute, nor a text.")
    except ValueError as error:  # lxml refuses control characters
        raise _text_failure(prop, path, error) from None
    return True


def _write_into_parent(node: Any, text: str) -> None:
    """Replace a selected attribute or text."""
    parent = node.getparent()
    if node.is_attribute:
        parent.set(node.attrname, text)
    elif node.is_tail:
        parent.tail = text
    else:
        parent.text = text


def _write_element(prop: Property, path: str, node: etree._Element, text: str) -> None:
    if any(isinstance(child.tag, str) for child in node):
        raise demotion_failure(prop, path, "The element has child elements.")
    for child in list(node):  # comments and instructions divide the text
        node.remove(child)
    node.text = text
    if NIL in node.attrib:
        del node.attrib[NIL]


def _create(prop: Property, path: str, steps: NamedSteps, root: etree._Element, text: str) -> None:
    """Create the missing elements of a path, each as the last child of its parent."""
    first, *names = (*reversed(steps.above), steps.tag)
    if root.tag != first:
        raise demotion_failure(prop, path, f"The root of the document is {root.tag}.")
    node = root
    for name in names:
        found = node.findall(name)
        if len(found) > 1:
            raise demotion_failure(prop, path, f"There are {len(found)} elements {name}.")
        node = found[0] if found else etree.SubElement(node, name)
    try:
        if steps.attribute is not None:
            node.set(steps.attribute, text)
        else:
            node.text = text
    except ValueError as error:
        raise _text_failure(prop, path, error) from None


def _text_failure(prop: Property, path: str, error: ValueError) -> Exception:
    return demotion_failure(prop, path, f"XML cannot represent its value: {error}.")
