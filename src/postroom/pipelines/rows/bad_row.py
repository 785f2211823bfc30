"""Explains why a row does not fit the schema. Spark's readers do not report a reason."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from postroom.errors import format_count
from postroom.pipelines.rows.cell_values import BadCell, UnknownText, check_json_value, describe_misfit, parse_cell
from postroom.pipelines.rows.source import RowSource, split_line

if TYPE_CHECKING:
    from lxml import etree

UNKNOWN_REASON = "It has too few or too many columns, a value of the wrong type, or is malformed."

#: A larger XML file is not searched for a bad row.
_MAX_XML_BYTES = 4 << 20
#: The maximum number of columns in an explanation.
_MAX_COLUMNS = 3


def explain_bad_row(source: RowSource, text: str, nulls: Collection[str], hidden: Collection[str]) -> str:
    """Return what is wrong with a row that Spark could not read.

    ``nulls`` are the columns that Spark set to null. A column with a value is among them if the value does not fit its
    type. The values of ``hidden`` columns are not shown."""
    try:
        values = read_texts(source, text)
    except ValueError as error:
        return str(error)
    present = [name for name, value in values.items() if value is not None]
    # Some readers set all columns of a bad row to null, others none.
    wrong = [name for name in present if name in nulls and source.types[name] != "string"]
    wrong = [name for name in wrong or present if not _can_read(source, name, values)] or wrong
    if not wrong:
        return UNKNOWN_REASON
    found = [
        f"The column {name!r} {describe_misfit(source.types[name], None if name in hidden else values[name])}."
        for name in wrong[:_MAX_COLUMNS]
    ]
    more = len(wrong) - _MAX_COLUMNS
    return " ".join(found) + (f" The same applies to {format_count(more, 'other column')}." if more > 0 else "")


def read_texts(source: RowSource, text: str) -> Mapping[str, str | None]:
    """Return the text of each value of a row by column, None for null. Raise ValueError with the reason."""
    match source.format:
        case "csv":
            return _read_csv(source, text)
        case "json":
            return _read_json(source, text)
        case _:
            return _read_xml(source, text)


def _can_read(source: RowSource, name: str, values: Mapping[str, str | None]) -> bool:
    """Return False if the text of a value certainly does not fit the type of its column."""
    text = values[name] or ""
    try:
        if source.format == "json":
            check_json_value(source.types[name], json.loads(text, parse_float=Decimal))
        else:
            parse_cell(source.types[name], text, source.options)
    except UnknownText:
        return True
    except BadCell:
        return False
    return True


def _read_csv(source: RowSource, text: str) -> Mapping[str, str | None]:
    cells = split_line(source, text)
    if len(cells) != len(source.types):
        columns = f"{format_count(len(source.types), 'column')} ({', '.join(source.types)[:300]})"
        raise ValueError(f"It has {format_count(len(cells), 'value')}, but the schema has {columns}.")
    return dict(zip(source.types, cells, strict=True))


def _read_json(source: RowSource, text: str) -> Mapping[str, str | None]:
    try:
        document = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise ValueError(f"It is not valid JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ValueError(UNKNOWN_REASON)
    return {
        name: None if document.get(name) is None else json.dumps(document[name], default=str, ensure_ascii=False)
        for name in source.types
    }


def find_xml_row(source: RowSource, text: bytes, number: int) -> bytes | None:
    """Return the element of a row of an XML file, or None if it is not found. Spark returns the whole file instead."""
    from lxml import etree

    if len(text) > _MAX_XML_BYTES:
        return None
    try:
        root = _parse_xml(text)
    except ValueError:
        return None
    tag = source.options.get("rowtag", "")
    found = [each for each in root.iter(etree.Element) if tag in (each.tag, etree.QName(each).localname)]
    if len(found) < number:
        return None
    row: bytes = etree.tostring(found[number - 1], with_tail=False, encoding="utf-8")
    values = _read_xml(source, row.decode())
    is_bad = any(value is not None and not _can_read(source, name, values) for name, value in values.items())
    return row if is_bad else None


def _parse_xml(text: bytes) -> etree._Element:
    # lxml is needed only for XML.
    from lxml import etree

    try:
        return etree.fromstring(text, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))
    except etree.XMLSyntaxError as error:
        raise ValueError(f"It is not well-formed XML: {error.msg}.") from None


def _read_xml(source: RowSource, text: str) -> Mapping[str, str | None]:
    from lxml import etree

    root = _parse_xml(text.encode())
    found = {etree.QName(child).localname: child.text for child in root.iterchildren(tag=etree.Element)}
    found |= {f"_{name!s}": str(value) for name, value in root.attrib.items()}
    return {name: (found.get(name) or "").strip() or None for name in source.types}
