"""Reads the rows of a document: an object or a list of objects in JSON, or lines of CSV. All values become text, which
PostgreSQL converts to the types of the columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

import msgspec

from postroom.adapters.postgres.definition import Format
from postroom.errors import DeliveryRefused

Row = dict[str, str | None]

_encode = msgspec.json.Encoder(decimal_format="number").encode


def read_rows(content: bytes, format: Format, fields: Mapping[str, str] | None) -> list[Row]:
    """Return the rows of a document. Raise DeliveryRefused if it is malformed, or has other fields."""
    try:
        text = content.decode("utf-8-sig")
        documents = _read_json(text) if format == "json" else _read_csv(text)
    except ValueError as error:  # or the text cannot be decoded
        raise DeliveryRefused(f"The document is not valid {format.upper()}.", why=str(error)) from error
    if fields is None:
        return [{name: format_value(value) for name, value in document.items()} for document in documents]
    return [{column: format_value(_find(document, path)) for column, path in fields.items()} for document in documents]


def format_value(value: object) -> str | None:
    """Return a value as a text that PostgreSQL can convert."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return _encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _read_json(text: str) -> list[dict[str, object]]:
    found = json.loads(text, parse_float=Decimal, parse_constant=_reject_constant)
    documents = found if isinstance(found, list) else [found]
    if not all(isinstance(document, dict) for document in documents):
        raise ValueError("a row is an object")
    return documents


def _reject_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def _read_csv(text: str) -> list[dict[str, object]]:
    """Return the lines by the names in the first line. An empty cell is NULL."""
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise ValueError(str(error)) from error
    if any(None in line or None in line.values() for line in lines):
        raise ValueError("a line has more or fewer cells than the first line")
    return [{name: cell or None for name, cell in line.items()} for line in lines]


def _find(document: Mapping[str, object], path: str) -> object:
    """Return the value at a path of keys, or None if there is none. A key with a dot is found at the top."""
    if path in document:
        return document[path]
    found: object = document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found
