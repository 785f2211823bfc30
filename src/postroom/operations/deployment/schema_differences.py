"""Describe the differences between schemas in words: the columns of a reader, the message types of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from postroom.adapters.spark_schema import parse_columns
from postroom.operations.deployment.plan import Difference
from postroom.operations.describe import format_type
from postroom.properties import dotted_name, split_key
from postroom.schemas.xsd import parse_path

NONE = "none"


def split_columns(schema: str) -> Mapping[str, str] | None:
    """Return the type of each column of a Spark schema, or None if it cannot be read."""
    try:
        return {column.name: column.type for column in parse_columns(schema)}
    except ValueError:
        return None


def find_schema_differences(before: Any, after: Any) -> list[Difference]:
    """Return the message types that differ in two stored sets of schemas, with what they promote."""
    old, new = _split_types(before), _split_types(after)
    found: list[Difference] = []
    for message_type in [*new, *(each for each in old if each not in new)]:
        one, other = old.get(message_type), new.get(message_type)
        if one is None or other is None:
            texts = [NONE if each is None else _summarise(each) for each in (one, other)]
            found.append(Difference(field=f"message type {message_type}", before=texts[0], after=texts[1]))
        else:
            found += _find_field_differences(message_type, _split_fields(one), _split_fields(other))
    return found


def _find_field_differences(
    message_type: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[Difference]:
    for name in [*after, *(each for each in before if each not in after)]:
        old, new = before.get(name, NONE), after.get(name, NONE)
        if old != new:
            yield Difference(field=f"message type {message_type}, {name}", before=old, after=new)


def _split_types(stored: Any) -> dict[str, Mapping[str, Any]]:
    return {schema["message_type"]: schema for schema in (stored or {}).get("schemas", ())}


def _summarise(schema: Mapping[str, Any]) -> str:
    names = ", ".join(dotted_name(*split_key(field["key"])) for field in schema.get("promoted", ()))
    kind = "an envelope" if schema.get("envelope") else "a message"
    return f"{kind} that promotes {names or 'nothing'}"


def _split_fields(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of a message type by name, each with a description."""
    parts = {}
    for field in schema.get("promoted", ()):
        name = dotted_name(*split_key(field["key"]))
        default = "" if field.get("default") is None else f", default {field['default']!r}"
        form = f" ({field['form']})" if field.get("form") else ""
        parts[f"promoted {name}"] = f"{_format_path(field['path'])} as {format_type(field['type'])}{form}{default}"
    for field in schema.get("distinguished", ()):
        default = "" if field.get("default") is None else f", default {field['default']!r}"
        parts[f"distinguished {_format_path(field['path'])}"] = f"yes{default}"
    parts["envelope"] = "yes" if schema.get("envelope") else "no"
    if schema.get("body"):
        parts["documents of the envelope"] = _format_path(schema["body"])
    return parts


def _format_path(path: str) -> str:
    steps = parse_path(path)
    return path if steps is None else "/" + "/".join(map(str, steps))
