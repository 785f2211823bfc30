"""Describe parts of stored definitions in words: components, pipelines, maps, files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.adapters.url_logins import HIDDEN
from postroom.operations.redaction import is_reference, is_secret
from postroom.properties import dotted_name, split_key
from postroom.secrets.references import Secret
from postroom.values import ValueType


def describe_value(value: Any) -> str:
    """Return a short text about a stored value.

    >>> describe_value([{"file": "app.py", "name": "decrypt"}, {"builtin": "compression", "name": "Gzip"}])
    'decrypt of app.py, Gzip'
    """
    match value:
        case None | [] | ():
            return "none"
        case [*items]:
            return ", ".join(map(describe_value, items))
        case {"name": str(name), "settings": {"source": source, "target": target, **settings}}:
            return f"{source} → {target} by {_find_mapper(settings) or name}"
        case {"schemas": [*schemas], **others} if not others:
            return ", ".join(schema["message_type"] for schema in schemas)
        case {"property": str(key), "type": int(value_type), "path": path}:
            return f"{dotted_name(*split_key(key))} at {path!r} as {format_type(value_type)}"
        case {"name": str(name), "key": str(key), "type": int(value_type)}:
            return f"{name} ({dotted_name(*split_key(key))}, {format_type(value_type)})"
        case {"file": str(file), "name": str(name)}:
            return f"{_add_settings(name, value.get('settings'))} of {file}"
        case {"builtin": str(), "name": str(name)} | {"module": str(), "name": str(name)}:
            return _add_settings(name, value.get("settings"))
        case {"kind": "secret"}:
            return str(Secret(**value))
        case {"kind": str(kind)}:
            return _add_settings(kind, {key: each for key, each in value.items() if key not in ("kind", "files")})
        case dict() if value:
            return ", ".join(f"{key}={describe_value(each)}" for key, each in value.items())
        case dict():
            return "none"
        case _:
            return str(value)


def format_type(value_type: int) -> str:
    """Return the name of the Python type of a stored property type."""
    return ValueType(value_type).python_type.__name__


def _find_mapper(settings: Mapping[Any, Any]) -> Any:
    function = settings.get("function")
    return settings.get("stylesheet") or (function["name"] if isinstance(function, Mapping) else None)


def _add_settings(name: str, settings: Mapping[str, Any] | None) -> str:
    """Return the name with its settings in parentheses. Empty settings are left out, secrets are hidden."""
    shown = {
        key: HIDDEN
        if is_secret(key) and not is_reference(each)
        else each
        if isinstance(each, str | int | float)
        else describe_value(each)
        for key, each in (settings or {}).items()
        if each not in (None, [], {}, ())
    }
    return f"{name} ({', '.join(f'{key}={each}' for key, each in shown.items())})" if shown else name
