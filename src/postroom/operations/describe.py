"""Parts of stored definitions as people call them: components, pipelines, maps, files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.namespaces import dotted_name, split_key
from postroom.operations.redaction import HIDDEN, is_secret
from postroom.values import ValueType


def in_words(value: Any) -> str:
    """A stored value in a few words.

    >>> in_words([{"file": "app.py", "name": "decrypt"}, {"builtin": "compression", "name": "Gzip", "settings": {}}])
    'decrypt of app.py, Gzip'
    """
    match value:
        case None | [] | ():
            return "none"
        case [*several]:
            return ", ".join(map(in_words, several))
        case {"name": str(name), "settings": {"source": source, "target": target, **settings}}:
            return f"{source} → {target} by {_mapper(settings) or name}"
        case {"property": str(key), "type": int(value_type), "path": path}:
            return f"{dotted_name(*split_key(key))} from {path!r} as {type_in_words(value_type)}"
        case {"name": str(name), "key": str(key), "type": int(value_type)}:
            return f"{name} ({dotted_name(*split_key(key))}, {type_in_words(value_type)})"
        case {"file": str(file), "name": str(name)}:
            return f"{_with_settings(name, value.get('settings'))} of {file}"
        case {"builtin": str(), "name": str(name)} | {"module": str(), "name": str(name)}:
            return _with_settings(name, value.get("settings"))
        case {"kind": str(kind)}:
            return _with_settings(kind, {key: each for key, each in value.items() if key not in ("kind", "files")})
        case dict() if value:
            return ", ".join(f"{key}={in_words(each)}" for key, each in value.items())
        case dict():
            return "none"
        case _:
            return str(value)


def type_in_words(value_type: int) -> str:
    """The Python type of a property that is stored."""
    return ValueType(value_type).python_type.__name__


def _mapper(settings: Mapping[Any, Any]) -> Any:
    function = settings.get("function")
    return settings.get("stylesheet") or (function["name"] if isinstance(function, Mapping) else None)


def _with_settings(name: str, settings: Mapping[str, Any] | None) -> str:
    """What is not said is left out, and what is secret is not told."""
    said = {
        key: HIDDEN if is_secret(key) else each if isinstance(each, str | int | float) else in_words(each)
        for key, each in (settings or {}).items()
        if each not in (None, [], {}, ())
    }
    return f"{name} ({', '.join(f'{key}={each}' for key, each in said.items())})" if said else name
