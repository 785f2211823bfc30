"""The context of a stored message, decoded when somebody looks at it: many adapters only want the body."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from postroom.message import Context
from postroom.values import Value, value_from_json

_decode = msgspec.json.Decoder().decode
_Encoded = dict[str, object]


class StoredContext(Context):
    """A context from its stored text. ``added`` (text and numbers, by property key) are written over what is stored."""

    __slots__ = ("_added", "_raw", "_text")

    def __init__(self, text: str, added: Mapping[str, str | int]) -> None:
        # The slots of the base class stay empty until __getattr__ is asked for them.
        self._text = text
        self._added = added
        self._raw: tuple[_Encoded, _Encoded] | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in ("_promoted", "_written"):
            raise AttributeError(name)
        promoted, written = self._raw or self._read()
        self._promoted = MappingProxyType(_values(promoted))
        self._written = MappingProxyType(_values(written))
        return object.__getattribute__(self, name)

    def __len__(self) -> int:
        # To count them they need not be decoded.
        promoted, written = self._raw or self._read()
        return len(promoted) + len(written)

    def _read(self) -> tuple[_Encoded, _Encoded]:
        raw: dict[str, _Encoded] = _decode(self._text)
        promoted, written = raw.get("promoted", {}), raw.get("written", {})
        written.update(self._added)
        if not self._added.keys().isdisjoint(promoted):
            promoted = {key: value for key, value in promoted.items() if key not in self._added}
        self._raw = promoted, written
        return self._raw

    def __reduce__(self) -> Any:
        return Context, (dict(self.promoted), dict(self.written))


def _values(encoded: _Encoded) -> dict[str, Value]:
    # Text and whole numbers stand for themselves.
    return {
        key: value if type(value) is str or type(value) is int else value_from_json(value)
        for key, value in encoded.items()
    }
