"""What differs between a declared thing and the deployed one, as people read it."""

from __future__ import annotations

from typing import Any

from postroom.namespaces import dotted_name, split_key
from postroom.operations.deployment.plan import Difference
from postroom.operations.describe import describe_value, format_type
from postroom.operations.redaction import redact_adapter


def find_differences(declared: dict[str, Any], deployed: dict[str, Any]) -> tuple[Difference, ...]:
    """The fields that differ, with both values in words; of a definition, its own fields."""
    found = []
    for field, after in declared.items():
        before = deployed[field]
        if field == "host":
            # Hosts differ by more than case.
            if before.lower() != after.lower():
                found.append(Difference(field=field, before=before, after=after))
        elif isinstance(after, dict):
            old, new = redact_adapter(before), redact_adapter(after)
            for key in sorted(after.keys() | before.keys()):
                if before.get(key) != after.get(key):
                    found += _inner_differences(f"{field} {key}", old.get(key), new.get(key))
        elif before != after:
            found.append(Difference(field=field, before=describe_value(before), after=describe_value(after)))
    return tuple(found)


def _inner_differences(field: str, before: object, after: object) -> list[Difference]:
    """Of what has parts, those that differ; all of it if they look alike, as secrets do."""
    if field.endswith(" files"):
        field, before, after = field.removesuffix("s"), before or {}, after or {}
    old, new = _parts(before), _parts(after)
    if old is not None and new is not None and old != new:
        return [
            Difference(field=f"{field} {key}", before=describe_value(old.get(key)), after=describe_value(new.get(key)))
            for key in [*new, *(key for key in old if key not in new)]
            if old.get(key) != new.get(key)
        ]
    return [Difference(field=field, before=describe_value(before), after=describe_value(after))]


def _parts(value: Any) -> dict[str, object] | None:
    """What a person would call the parts of a stored value: entries by name, promotions by property."""
    match value:
        case dict():
            return value
        case [{"property": _, "type": _, "path": _}, *_]:
            return {
                dotted_name(*split_key(one["property"])): f"{one['path']!r} as {format_type(one['type'])}"
                for one in value
            }
        case []:
            return {}
        case _:
            return None
