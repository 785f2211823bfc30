"""Describe the differences between a declared object and the deployed one."""

from __future__ import annotations

from typing import Any

from postroom.operations.deployment.plan import Difference
from postroom.operations.describe import describe_value, format_type
from postroom.operations.redaction import redact_adapter
from postroom.pipelines.shipping.equal_code import runs_equal_code
from postroom.properties import dotted_name, split_key


def find_differences(declared: dict[str, Any], deployed: dict[str, Any]) -> tuple[Difference, ...]:
    """Return the fields that differ, with descriptions of both values. Nested definitions are compared by field,
    and shipped files by the code that the components of the definition use."""
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
                if before.get(key) != after.get(key) and not (key == "files" and runs_equal_code(before, after)):
                    found += _find_nested_differences(f"{field} {key}", old.get(key), new.get(key))
        elif before != after:
            found.append(Difference(field=field, before=describe_value(before), after=describe_value(after)))
    return tuple(found)


def _find_nested_differences(field: str, before: object, after: object) -> list[Difference]:
    """Return the parts that differ. Return the whole field if the parts look the same, as redacted secrets do."""
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
