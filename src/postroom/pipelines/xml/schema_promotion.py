"""Promotes the fields that the schema of a document names (CTX-08 … CTX-16)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache

from lxml import etree

from postroom.errors import BadValue
from postroom.pipelines.promotions import promotion_failure
from postroom.pipelines.xml.path import compile_path
from postroom.pipelines.xml.promotion import get_text, select
from postroom.properties import Property
from postroom.schemas import PromotedField, Schema
from postroom.schemas.xsd_types import parse_value
from postroom.values import Value, ValueType, check_promoted, check_value

#: Returns True if an element of the document is written self-closed.
IsSelfClosed = Callable[[etree._Element], bool]


class SchemaPromotion:
    """Reads the values of the fields that a schema names."""

    def __init__(self, schema: Schema) -> None:
        self._promoted = [(field, field.property, compile_path(field.path, {})) for field in schema.promoted]
        self._written = [(field, field.property, compile_path(field.path, {})) for field in schema.distinguished]

    def values(self, root: etree._Element, is_self_closed: IsSelfClosed) -> dict[str, Value]:
        """Return the values by property key. An absent field has no entry (CTX-13)."""
        values: dict[str, Value] = {}
        for field, prop, xpath in self._promoted:
            text = _read_text(prop, field.path, field.default, xpath, root, is_self_closed)
            value = None if text is None else _to_value(field, prop, text)
            if value is not None:
                values[prop.key] = value
        for written, prop, xpath in self._written:
            text = _read_text(prop, written.path, written.default, xpath, root, is_self_closed)
            if text is not None:
                values[prop.key] = check_value(ValueType.STR, text)
        return values


def compile_schema_promotion(schema: Schema) -> SchemaPromotion:
    """Return the compiled fields of this thread."""
    return _compile_for_thread(schema, threading.get_ident())


# One per thread: lxml locks an XPath while it runs. A thread that was abandoned there would block the others.
@lru_cache(maxsize=256)
def _compile_for_thread(schema: Schema, thread: int) -> SchemaPromotion:
    return SchemaPromotion(schema)


def _read_text(
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
