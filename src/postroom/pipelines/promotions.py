"""The properties that a pipeline promotes and the paths in a document that they come from: ``{Region: "region"}``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from postroom.errors import BadValue, PipelineFailure
from postroom.properties import Property
from postroom.system_properties import ENGINE_PROPERTIES, SYSTEM_PROPERTIES
from postroom.values import Value, ValueType, check_promoted, value_from_text

#: The number of characters shown at the start and at the end of a reason that quotes a long value.
_SHOWN = 150


class Promotions(Mapping[Property, str]):
    """Properties with the paths that they are promoted from, in the order of the declaration.

    Immutable and hashable, so that its compiled form can be cached. It can contain a property twice, because
    ``problems`` reports this afterwards.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: tuple[tuple[Property, str], ...] = ()) -> None:
        self._entries = entries

    @classmethod
    def read(cls, source: object) -> Promotions:
        """Parse a user's mapping, or the list of objects that ``to_stored`` returns."""
        if isinstance(source, Promotions):
            return source
        if isinstance(source, Mapping):
            entries = tuple(source.items())
        elif isinstance(source, list | tuple):
            entries = tuple((_parse_property(entry), entry["path"]) for entry in source)
        else:
            raise ValueError('write a mapping from properties to paths, such as {Region: "region"}')
        for prop, path in entries:
            if not isinstance(prop, Property):
                raise ValueError(f'{prop!r} is not a property; write Property("Orders.Region", str) and use that')
            if not isinstance(path, str):
                raise ValueError(f"the path of {prop.dotted_name} is {path!r}, which is not text")
        return cls(entries)

    def to_stored(self) -> list[dict[str, Any]]:
        """Return JSON with the key and the type number of each property."""
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
        """Describe the problems that do not depend on the format: no path, a property twice, a system property."""
        found = []
        keys: set[str] = set()
        for prop, path in self._entries:
            if not path.strip():
                found.append(f"The path of {prop.dotted_name} is empty.")
            if prop.key in keys:
                found.append(f"{prop.dotted_name} is promoted twice; a property has one value.")
            if prop.key in SYSTEM_PROPERTIES:
                found.append(f"{prop.dotted_name} is set by the engine; promote into a property of your own.")
            keys.add(prop.key)
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
        return "{" + ", ".join(f"{prop.dotted_name}: {path!r}" for prop, path in self._entries) + "}"


def find_engine_properties(promotes: Iterable[Property]) -> list[str]:
    """Return a problem for each property that a component or a map promotes and that only the engine may promote."""
    return [
        f"{prop.dotted_name} is set by the engine; promote into a property of your own."
        for prop in promotes
        if prop.key in ENGINE_PROPERTIES
    ]


def _parse_property(entry: object) -> Property:
    if not isinstance(entry, Mapping) or not {"property", "type", "path"} <= entry.keys():
        raise ValueError(f"{entry!r} is not a stored promotion")
    return Property.from_key(entry["property"], ValueType(entry["type"]), sensitive=entry.get("sensitive", False))


#: The type of a ``promote`` field: a user passes any mapping, the definition has ``Promotions``.
Promote = Annotated[
    Mapping[Property, str],
    PlainValidator(Promotions.read),
    PlainSerializer(Promotions.to_stored, return_type=list[dict[str, Any]]),
]


def promote_text(prop: Property, text: str | None, *, path: str) -> Value | None:
    """Convert text to the value of a property. Return None if nothing is promoted: blank text is a value of a str
    property only (CTX-13, CTX-14)."""
    if text is None or (prop.value_type is not ValueType.STR and not text.strip()):
        return None
    try:
        return check_promoted(value_from_text(prop.value_type, text))
    except BadValue as error:
        raise bad_value_failure(prop, path, error) from None


def promotion_failure(prop: Property, path: str, why: str, hint: str = "") -> PipelineFailure:
    """Return the failure of a document, with the property and the path."""
    if len(why) > 2 * _SHOWN:
        why = f"{why[:_SHOWN]} … {why[-_SHOWN:]}"
    return PipelineFailure(
        f"{prop.dotted_name} cannot be promoted from {path!r}.",
        why=why,
        hint=hint or "Correct the document and send it again, or promote the property from another path.",
    )


def bad_value_failure(prop: Property, path: str, error: BadValue) -> PipelineFailure:
    """Return the failure for a value that the property cannot have. A sensitive value is not shown (SEC-14)."""
    if not prop.sensitive:
        return promotion_failure(prop, path, error.what, error.hint)
    type_name = prop.value_type.python_type.__name__
    return promotion_failure(prop, path, f"The value (hidden) is not a valid {type_name}.")
