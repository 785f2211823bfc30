"""Convert the records that operations return to JSON, in the same way for every caller: command line, API or console.

A record is a frozen dataclass without secrets. Its fields are the keys of the JSON object. The keys of a field
``field(metadata=FLAT)``, which is a mapping, are among them.

    to_json(list_ports(connection))
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FLAT = {"flat": True}

Extended = TypeVar("Extended", bound="DataclassInstance")


def to_row(record: object) -> dict[str, Any]:
    """Return the fields of a record by name, with their values as they are. A mapping is copied."""
    if isinstance(record, Mapping):
        return dict(record)
    assert is_dataclass(record), f"{record!r} is not a record"
    row: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        row |= value if field.metadata == FLAT else {field.name: value}
    return row


def extend(record: DataclassInstance, into: type[Extended], **more: object) -> Extended:
    """Return the record with more fields, as the subclass that has them.

    >>> extend(listing, OrchestrationDetails, older_versions=[1, 2])
    """
    return into(**{field.name: getattr(record, field.name) for field in fields(record) if field.init}, **more)


def to_json(value: object) -> str:
    """Return indented JSON."""
    return json.dumps(_to_json_value(value), indent=2, ensure_ascii=False)


def _to_json_value(value: object) -> Any:
    """Return a value or a record as JSON can represent it."""
    match value:
        case Enum():
            return get_label(value)
        case None | str() | bool() | int() | float():
            return value
        case datetime():
            return value.isoformat()
        case bytes():
            return value.decode(errors="replace")
        case Mapping():
            return {_to_json_value(key): _to_json_value(each) for key, each in value.items()}
        case list() | tuple():
            return [_to_json_value(each) for each in value]
        case set() | frozenset():
            return sorted(_to_json_value(each) for each in value)
        case _ if is_dataclass(value):
            return _to_json_value(to_row(value))
        case _:
            # Text, also for Decimal: a JSON number would not be exact.
            return str(value)


def get_label(value: Enum) -> Any:
    """Return the text of an enumeration: its label, the name of a number, or its value."""
    if isinstance(value, IntEnum):
        return getattr(value, "label", value.name.lower())
    return value.value
