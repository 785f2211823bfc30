"""Describe the differences between a declared object and the deployed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from postroom.adapters.spark_schema import parse_columns
from postroom.errors import format_count
from postroom.operations.deployment.plan import Difference
from postroom.operations.describe import describe_value, format_type
from postroom.operations.redaction import redact_adapter
from postroom.properties import dotted_name, split_key
from postroom.schemas.xsd import parse_path

_NONE = "none"


def find_differences(declared: dict[str, Any], deployed: dict[str, Any]) -> tuple[Difference, ...]:
    """Return the fields that differ, with descriptions of both values. Nested definitions are compared by field,
    and shipped files by name."""
    found = []
    for field, after in declared.items():
        before = deployed[field]
        if field == "host":
            # Names of hosts are not case-sensitive.
            if before.lower() != after.lower():
                found.append(Difference(field=field, before=before, after=after))
        elif isinstance(after, dict):
            old, new = redact_adapter(before), redact_adapter(after)
            for key in sorted(after.keys() | before.keys()):
                if before.get(key) != after.get(key):
                    found += _find_nested_differences(f"{field} {key}", old.get(key), new.get(key))
        elif before != after:
            found.append(Difference(field=field, before=describe_value(before), after=describe_value(after)))
    if any(one.field.startswith("adapter ") for one in found):
        # They follow from the columns and options of the reader.
        found = [one for one in found if one.field not in ("pipeline columns", "pipeline source")]
    return tuple(found)


def find_plain_differences(declared: Mapping[str, object], deployed: Mapping[str, object]) -> tuple[Difference, ...]:
    """Return the fields that differ. Their values are flags, numbers, texts and lists of texts."""
    return tuple(
        Difference(field=field, before=_format_plain(deployed[field]), after=_format_plain(after))
        for field, after in declared.items()
        if deployed[field] != after
    )


def _format_plain(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else describe_value(value)


def _find_nested_differences(field: str, before: object, after: object) -> list[Difference]:
    """Return the parts that differ. Return the whole field if the parts look the same, as redacted secrets do."""
    if field == "pipeline schemas":
        return _find_schema_differences(before, after)
    if field == "pipeline disassemblers":
        return _find_disassembler_differences(field, before or [], after or [])
    if field == "pipeline assemblers":
        return _find_assembler_differences(field, before or [], after or [])
    if field == "adapter columns" and isinstance(before, str) and isinstance(after, str):
        columns = _split_columns(before), _split_columns(after)
        if columns[0] is not None and columns[1] is not None and columns[0] != columns[1]:
            field, before, after = "adapter column", *columns
    if field == "pipeline source":
        return [Difference(field=field, before=_describe_source(before), after=_describe_source(after))]
    if field.endswith(" files"):
        field, before, after = field.removesuffix("s"), before or {}, after or {}
    old, new = _split_parts(before), _split_parts(after)
    if old is not None and new is not None and old != new:
        return [
            Difference(field=f"{field} {key}", before=describe_value(old.get(key)), after=describe_value(new.get(key)))
            for key in [*new, *(key for key in old if key not in new)]
            if old.get(key) != new.get(key)
        ]
    return [Difference(field=field, before=describe_value(before), after=describe_value(after))]


def _find_disassembler_differences(field: str, before: Any, after: Any) -> list[Difference]:
    """Return the message types that differ, and the other settings of the disassemblers as one difference."""
    found = []
    if len(before) == len(after):
        for one, other in zip(before, after, strict=True):
            found += _find_schema_differences(one.get("schemas"), other.get("schemas"))
    old, new = ([{**one, "schemas": None} for one in listed] if found else listed for listed in (before, after))
    if old != new or not found:
        found.append(Difference(field=field, before=describe_value(old), after=describe_value(new)))
    return found


def _find_assembler_differences(field: str, before: Any, after: Any) -> list[Difference]:
    """Return the settings that differ if both pipelines have the same assembler, else the assemblers."""
    match before, after:
        case [{"settings": dict(old), **one}], [{"settings": dict(new), **other}] if one == other:
            found = _find_schema_differences(old.get("schemas"), new.get("schemas"))
            for key in sorted((old.keys() | new.keys()) - {"schemas"}):
                if old.get(key) != new.get(key):
                    found += _find_nested_differences(f"pipeline assembler {key}", old.get(key), new.get(key))
            return found
    return [Difference(field=field, before=describe_value(before), after=describe_value(after))]


def _describe_source(source: Any) -> str:
    return f"{format_count(len(source['columns']), 'column')} of {source['format']}" if source else "none"


def _split_parts(value: Any) -> dict[str, object] | None:
    """Return the parts of a stored value: entries by name, promotions by property. Return None if it has no parts."""
    match value:
        case dict():
            return value
        case [{"property": _, "type": _, "path": _}, *_]:
            return {
                dotted_name(*split_key(entry["property"])): f"{entry['path']!r} as {format_type(entry['type'])}"
                for entry in value
            }
        case []:
            return {}
        case _:
            return None


# -- schemas: the columns of a reader, the message types of a pipeline -----------------------------------------------


def _split_columns(schema: str) -> Mapping[str, str] | None:
    """Return the type of each column of a Spark schema, or None if it cannot be read."""
    try:
        return {column.name: column.type for column in parse_columns(schema)}
    except ValueError:
        return None


def _find_schema_differences(before: Any, after: Any) -> list[Difference]:
    """Return the message types that differ in two stored sets of schemas, with what they promote."""
    old, new = _split_types(before), _split_types(after)
    found: list[Difference] = []
    for message_type in [*new, *(each for each in old if each not in new)]:
        one, other = old.get(message_type), new.get(message_type)
        if one is None or other is None:
            texts = [_NONE if each is None else _summarise(each) for each in (one, other)]
            found.append(Difference(field=f"message type {message_type}", before=texts[0], after=texts[1]))
        else:
            found += _find_field_differences(message_type, _split_fields(one), _split_fields(other))
    return found


def _find_field_differences(
    message_type: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[Difference]:
    for name in [*after, *(each for each in before if each not in after)]:
        old, new = before.get(name, _NONE), after.get(name, _NONE)
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
