"""Reads the text of a row without Spark: its values by column, and why it does not fit the schema.

Spark's readers do not report a reason. Only texts that Spark reads in the same way are accepted as values. For others,
a row is corrected as the message.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from decimal import Context as DecimalContext
from typing import TYPE_CHECKING, Any

from postroom.errors import format_count
from postroom.pipelines.rows.source import RowSource

if TYPE_CHECKING:
    from lxml import etree

UNKNOWN_REASON = "It has too few or too many columns, a value of the wrong type, or is malformed."

#: A larger XML file is not searched for a bad row.
_MAX_XML_BYTES = 4 << 20
#: The maximum number of columns in an explanation, and of characters of a value.
_MAX_COLUMNS, _MAX_CHARACTERS = 3, 100
#: The characters that Spark's reader trims.
_BLANK = "".join(map(chr, range(33)))

_INTEGERS = {
    **dict.fromkeys(("tinyint", "byte"), 8),
    **dict.fromkeys(("smallint", "short"), 16),
    **dict.fromkeys(("int", "integer"), 32),
    **dict.fromkeys(("bigint", "long"), 64),
}
_FLOATS = ("float", "real", "double")
_TEXT = re.compile(r"string|(?:var)?char\s*\(\s*\d+\s*\)")
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_NUMBER_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WHOLE_NUMBER = re.compile(r"[+-]?\d+")
#: Spark's decimals have up to 38 digits, and one more before they are rounded.
_DECIMALS = DecimalContext(prec=40)


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
    try:
        parse_value(source, name, values[name] or "")
    except UnknownText:
        return True
    except BadCell:
        return False
    return True


# -- rows of each format ---------------------------------------------------------------------------------------------


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
    return {name: _write_json(document.get(name)) for name in source.types}


def _write_json(value: Any) -> str | None:
    if value is None:
        return None
    return str(value) if isinstance(value, Decimal) else json.dumps(value, default=str, ensure_ascii=False)


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


def split_line(source: RowSource, line: str) -> list[str | None]:
    """Return the values of a line, None for null. Raise ValueError with the reason if it is not
    well-formed."""
    cells: list[str | None] = []
    position = 0
    while True:
        text, end = _read_cell(source, line, position)
        cells.append(text)
        if end == len(line):
            return cells
        position = end + len(source.separator)


def _read_cell(source: RowSource, line: str, start: int) -> tuple[str | None, int]:
    """Return the value that starts at a position, and the position after it."""
    options, separator = source.options, source.separator
    quote = options.get("quote", '"')
    if options.get("ignoreleadingwhitespace") == "true":
        while start < len(line) and line[start] in _BLANK and not line.startswith(separator, start):
            start += 1
    null = options.get("nullvalue", "")
    if quote and line.startswith(quote, start):
        text, end = _read_quoted(source, line, start + len(quote), quote)
        text = text or options.get("emptyvalue", "")
        return (None if text == null else text), end
    end = line.find(separator, start)
    end = len(line) if end < 0 else end
    text = line[start:end]
    if "\n" in text or "\r" in text:
        raise ValueError("It has more than one line.")
    if options.get("ignoretrailingwhitespace") == "true":
        text = text.rstrip(_BLANK)
    return (None if text in ("", null) else text), end


def _read_quoted(source: RowSource, line: str, start: int, quote: str) -> tuple[str, int]:
    """Return the text of a quoted value and the position after its closing quote."""
    escape = source.options.get("escape", "\\")
    marked = f"{re.escape(escape + quote)}|" if escape else ""
    text = re.compile(f"(?:{marked}[^{re.escape(quote)}])*+").match(line, start)
    assert text is not None
    end = text.end() + len(quote)
    if end > len(line):
        raise ValueError(f"A value starts with {quote}, and the closing {quote} is missing.")
    if end < len(line) and not line.startswith(source.separator, end):
        raise ValueError(f"A {quote} inside a quoted value is written as {escape or quote}{quote}.")
    return text[0].replace(escape + quote, quote), end


# -- values ----------------------------------------------------------------------------------------------------------


class BadCell(ValueError):
    """A value does not fit its column. The text completes a sentence about the column."""


class UnknownText(BadCell):
    """Only Spark can convert the texts of a column."""


def parse_value(source: RowSource, name: str, text: str) -> Any:
    """Convert a text that ``read_texts`` has returned. Raise BadCell if it does not fit the type of its column."""
    if source.format != "json":
        return parse_cell(source.types[name], text, source.options)
    value = json.loads(text, parse_float=Decimal)
    _check_json_value(source.types[name], value, text)
    return value


def parse_cell(column_type: str, text: str, options: Mapping[str, str]) -> Any:
    """Convert the text of a value. Raise BadCell if it does not fit the type."""
    if _TEXT.fullmatch(column_type):
        return text
    if column_type == "boolean":
        if text.lower() not in ("true", "false"):
            raise _misfit(column_type, text)
        return text.lower() == "true"
    if _is_number(column_type) and not (_DECIMAL.fullmatch(column_type) and "locale" in options):
        is_whole = _WHOLE_NUMBER.fullmatch(text) is not None
        return _fit_number(column_type, _parse_number(text), text, is_whole=is_whole)
    try:
        if column_type == "date" and "dateformat" not in options:
            return date.fromisoformat(text)
        if column_type in ("timestamp", "timestamp_ltz") and "timestampformat" not in options:
            moment = datetime.fromisoformat(text)
            # The readers of Postroom use UTC for a time without a zone.
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _misfit(column_type, text) from None
    raise UnknownText(f"is {column_type}, whose values can be corrected only in the message")


def _check_json_value(column_type: str, value: Any, text: str) -> None:
    """Raise BadCell if a value of a JSON document does not fit the type. Numbers are int or Decimal."""
    if _is_number(column_type):
        number = Decimal(value) if type(value) in (int, Decimal) else None
        _fit_number(column_type, number, text, is_whole=type(value) is int)
    elif column_type == "boolean" and not isinstance(value, bool):
        raise _misfit(column_type, text)


def _is_number(column_type: str) -> bool:
    return column_type in _INTEGERS or column_type in _FLOATS or _DECIMAL.fullmatch(column_type) is not None


def _parse_number(text: str) -> Decimal | None:
    try:
        return Decimal(text) if _NUMBER_TEXT.fullmatch(text) else None
    except InvalidOperation:  # its exponent is too large
        return None


def _fit_number(column_type: str, number: Decimal | None, text: str, *, is_whole: bool) -> int | float | Decimal:
    """Return a number as a value of a column. Raise BadCell if the column cannot have it."""
    if number is None:
        raise _misfit(column_type, text)
    if column_type in _INTEGERS:
        limit = 1 << (_INTEGERS[column_type] - 1)
        if is_whole and -limit <= number < limit:
            return int(number)
    elif column_type in _FLOATS:
        if math.isfinite(value := float(number)):
            return value
    elif digits := _DECIMAL.fullmatch(column_type):
        precision, scale = int(digits[1] or 10), int(digits[2] or 0)
        if not number or number.adjusted() < precision - scale:
            rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _DECIMALS)
            if not rounded or rounded.adjusted() < precision - scale:
                return rounded
    raise _misfit(column_type, text)


def describe_misfit(column_type: str, text: str | None) -> str:
    """Return the end of a sentence about a column whose value does not fit. A ``text`` of None is a hidden value."""
    value = "a value (hidden) of another type" if text is None else repr(text[:_MAX_CHARACTERS])
    return f"is {column_type}, but has {value}"


def _misfit(column_type: str, text: str) -> BadCell:
    return BadCell(describe_misfit(column_type, text))
