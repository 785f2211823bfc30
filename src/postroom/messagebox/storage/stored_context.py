"""The context of a stored message, decoded when somebody looks at it: many adapters only want the body."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from postroom.message import Context, predicates_from_json
from postroom.system_properties import BTS
from postroom.values import Value, value_from_json

_decode = msgspec.json.Decoder().decode
_Encoded = dict[str, object]

#: The account that published a message, and the party that it is from; kept beside the context (ADR 0034).
Originator = tuple[str, str]


class StoredContext(Context):
    """A context from its stored text. ``added`` (text and numbers, by property key) are written over what is stored.

    So is the ``originator``, whatever the publisher wrote about it into the context.
    """

    __slots__ = ("_added", "_originator", "_raw", "_text")

    def __init__(self, text: str, added: Mapping[str, str | int], originator: Originator | None = None) -> None:
        # The slots of the base class stay empty until __getattr__ is asked for them.
        self._text = text
        self._added = added
        self._originator = originator
        self._raw: tuple[_Encoded, _Encoded, list[Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in ("_promoted", "_written", "_predicates"):
            raise AttributeError(name)
        promoted, written, predicates = self._raw or self._read()
        self._promoted = MappingProxyType(_values(promoted))
        self._written = MappingProxyType(_values(written))
        self._predicates = predicates_from_json(predicates)
        return object.__getattribute__(self, name)

    def __len__(self) -> int:
        # To count them they need not be decoded.
        promoted, written, _ = self._raw or self._read()
        return len(promoted) + len(written)

    def _read(self) -> tuple[_Encoded, _Encoded, list[Any]]:
        raw: dict[str, Any] = _decode(self._text)
        promoted, written = raw.get("promoted", {}), raw.get("written", {})
        if self._originator is not None:
            name_originator(promoted, written, self._originator)
        written.update(self._added)
        if not self._added.keys().isdisjoint(promoted):
            promoted = {key: value for key, value in promoted.items() if key not in self._added}
        self._raw = promoted, written, raw.get("predicates", [])
        return self._raw

    def __reduce__(self) -> Any:
        return Context, (dict(self.promoted), dict(self.written), self.predicates)


def name_originator(promoted: dict[str, Any], written: dict[str, Any], originator: Originator) -> None:
    """Who published a message, over what its stored context says about it; promoted stays promoted."""
    for prop, value in zip((BTS.OriginatorSID, BTS.OriginatorPID), originator, strict=True):
        (promoted if prop.key in promoted else written)[prop.key] = value


def _values(encoded: _Encoded) -> dict[str, Value]:
    # Text and whole numbers stand for themselves.
    return {
        key: value if type(value) is str or type(value) is int else value_from_json(value)
        for key, value in encoded.items()
    }
