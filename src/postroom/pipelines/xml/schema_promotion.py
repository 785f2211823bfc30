"""Promotion by a schema: what a document of a known message type gives to its context (CTX-08 … CTX-16)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache

from lxml import etree

from postroom.errors import BadValue
from postroom.pipelines.promote import cannot_promote
from postroom.pipelines.xml.path import compile_path
from postroom.pipelines.xml.promotion import select, text_of
from postroom.properties import Property
from postroom.schemas import PromotedField, Schema
from postroom.schemas.xsd_types import value_of
from postroom.values import Value, ValueType, check_promoted, check_value

#: Whether an element of the document was written self-closed.
IsSelfClosed = Callable[[etree._Element], bool]


class SchemaPromotion:
    """Reads the values that a schema names out of a document."""

    def __init__(self, schema: Schema) -> None:
        self._promoted = [(field, field.property, compile_path(field.path, {})) for field in schema.promoted]
        self._written = [(field, field.property, compile_path(field.path, {})) for field in schema.distinguished]

    def values(self, root: etree._Element, is_self_closed: IsSelfClosed) -> dict[str, Value]:
        """By property key; what is absent is not there (CTX-13)."""
        values: dict[str, Value] = {}
        for field, prop, xpath in self._promoted:
            text = _text(prop, field.path, field.default, xpath, root, is_self_closed)
            value = None if text is None else _value(field, prop, text)
            if value is not None:
                values[prop.key] = value
        for written, prop, xpath in self._written:
            text = _text(prop, written.path, written.default, xpath, root, is_self_closed)
            if text is not None:
                values[prop.key] = check_value(ValueType.STR, text)
        return values


def schema_promotion(schema: Schema) -> SchemaPromotion:
    """The compiled form."""
    return _compiled(schema, threading.get_ident())


# For each thread: a path that is at work is locked, and a thread that was left behind in one would keep others waiting.
@lru_cache(maxsize=256)
def _compiled(schema: Schema, thread: int) -> SchemaPromotion:
    return SchemaPromotion(schema)


def _text(
    prop: Property,
    path: str,
    default: str | None,
    xpath: etree.XPath,
    root: etree._Element,
    is_self_closed: IsSelfClosed,
) -> str | None:
    node = select(prop, path, xpath, root)
    text = text_of(node)
    if text == "" and default is not None and not isinstance(node, str | None) and is_self_closed(node):
        return default
    return text


def _value(field: PromotedField, prop: Property, text: str) -> Value | None:
    """Blank text is a value of a str property only."""
    if prop.value_type is not ValueType.STR and not text.strip():
        return None
    try:
        return check_promoted(value_of(field.form, prop.value_type, text))
    except BadValue as error:
        raise cannot_promote(prop, field.path, error.what, error.hint) from None
