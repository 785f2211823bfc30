"""Which properties a pipeline promotes, and from where in a document: ``promote={Region: "region"}``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from postroom.properties import Property
from postroom.system_properties import SYSTEM_PROPERTIES
from postroom.values import ValueType


class Promotions(Mapping[Property, str]):
    """Properties with the path that each is promoted from, in the order in which they were written.

    Immutable and hashable, so that what is compiled from it can be cached. It can hold one property twice, because
    a definition is built as it was written and tells its problems afterwards.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: tuple[tuple[Property, str], ...] = ()) -> None:
        self._entries = entries

    @classmethod
    def read(cls, source: object) -> Promotions:
        """From what a user writes (a mapping) or what ``stored`` made of it (a list of objects)."""
        if isinstance(source, Promotions):
            return source
        if isinstance(source, Mapping):
            entries = tuple(source.items())
        elif isinstance(source, list | tuple):
            entries = tuple((_stored_property(entry), entry["path"]) for entry in source)
        else:
            raise ValueError('write a mapping from properties to paths, such as {Region: "region"}')
        for prop, path in entries:
            if not isinstance(prop, Property):
                raise ValueError(f'{prop!r} is not a property; write Property("Orders.Region", str) and use that')
            if not isinstance(path, str):
                raise ValueError(f"the path of {prop.dotted} is {path!r}, which is not text")
        return cls(entries)

    def stored(self) -> list[dict[str, Any]]:
        """As JSON: each property by its key and the number of its type."""
        return [
            {"property": prop.key, "type": int(prop.value_type), "path": path}
            | ({"sensitive": True} if prop.sensitive else {})
            for prop, path in self._entries
        ]

    @property
    def properties(self) -> tuple[Property, ...]:
        return tuple(prop for prop, _ in self._entries)

    @property
    def entries(self) -> tuple[tuple[Property, str], ...]:
        return self._entries

    def problems(self) -> list[str]:
        """What is wrong whatever the format is: no path, one property twice, a property that no content can set."""
        found = []
        seen: set[str] = set()
        for prop, path in self._entries:
            if not path.strip():
                found.append(f"The path of {prop.dotted} is empty.")
            if prop.key in seen:
                found.append(f"{prop.dotted} is promoted twice; a property has one value.")
            if prop.key in SYSTEM_PROPERTIES:
                found.append(
                    f"{prop.dotted} is set by the engine and not from content; promote into a property of your own."
                )
            seen.add(prop.key)
        return found

    def __getitem__(self, prop: Property) -> str:
        for entry, path in self._entries:
            if entry.key == prop.key:
                return path
        raise KeyError(prop)

    def __iter__(self) -> Iterator[Property]:
        return iter(self.properties)

    def __len__(self) -> int:
        return len(self._entries)

    def _identity(self) -> tuple[tuple[str, ValueType, bool, str], ...]:
        return tuple((prop.key, prop.value_type, prop.sensitive, path) for prop, path in self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Promotions) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{prop.dotted}: {path!r}" for prop, path in self._entries) + "}"


def _stored_property(entry: object) -> Property:
    if not isinstance(entry, Mapping) or not {"property", "type", "path"} <= entry.keys():
        raise ValueError(f"{entry!r} is not a stored promotion")
    return Property.from_key(entry["property"], ValueType(entry["type"]), sensitive=entry.get("sensitive", False))


#: The type of a ``promote`` field: a user gives any mapping, the definition holds ``Promotions``.
Promote = Annotated[
    Mapping[Property, str],
    PlainValidator(Promotions.read),
    PlainSerializer(Promotions.stored, return_type=list[dict[str, Any]]),
]
