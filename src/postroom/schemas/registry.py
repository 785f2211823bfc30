"""The registry of message types: the fields to promote and to write, and the envelopes.

A registry is a frozen value that is stored with its pipeline, so a location never mixes an old and a new set of
schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from pydantic import BaseModel, ConfigDict

from postroom.properties import DistinguishedField, Property
from postroom.values import ValueType


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PromotedField(_Stored):
    """A field of a message that becomes a property.

    ``form`` is the XSD type of its text, which is needed for dates. ``default`` is the value of a self-closed element
    (CTX-14)."""

    key: str
    type: int
    path: str
    form: str = "string"
    default: str | None = None

    @property
    def property(self) -> Property:
        return Property.from_key(self.key, ValueType(self.type))


class WrittenField(_Stored):
    """A distinguished field: written to the context as text, under its path (CTX-11)."""

    path: str
    default: str | None = None

    @property
    def property(self) -> DistinguishedField:
        return DistinguishedField(self.path)


class Schema(_Stored):
    """A message type. ``body`` is the path of the elements of an envelope that contain its documents."""

    message_type: str
    promoted: tuple[PromotedField, ...] = ()
    distinguished: tuple[WrittenField, ...] = ()
    envelope: bool = False
    body: str | None = None

    @property
    def properties(self) -> Iterator[Property]:
        yield from (field.property for field in self.promoted)
        yield from (field.property for field in self.distinguished)


class Schemas(_Stored):
    """The schemas of a pipeline. Each message type occurs once (TYP-05)."""

    schemas: tuple[Schema, ...] = ()

    def find(self, message_type: str) -> Schema | None:
        return self._by_type.get(message_type)

    @cached_property
    def _by_type(self) -> dict[str, Schema]:
        return {schema.message_type: schema for schema in self.schemas}

    @cached_property
    def properties(self) -> tuple[Property, ...]:
        """All properties and distinguished fields that these schemas define, each once."""
        found = {prop.key: prop for schema in self.schemas for prop in schema.properties}
        return tuple(found[key] for key in sorted(found))

    def __len__(self) -> int:
        return len(self.schemas)
