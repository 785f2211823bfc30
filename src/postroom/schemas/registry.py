"""What is known of the messages of an application, by message type: what to promote and to write, what is an envelope.

A registry is a frozen value that travels with the pipeline that reads by it, so that a location never reads by half of
an old set of schemas and half of a new one.
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

    ``form`` is the XSD type that its text is written in, which matters for dates. ``default`` is what a self-closed
    element stands for (CTX-14)."""

    key: str
    type: int
    path: str
    form: str = "string"
    default: str | None = None

    @property
    def property(self) -> Property:
        return Property.from_key(self.key, ValueType(self.type))


class WrittenField(_Stored):
    """A distinguished field: carried in the context as text, under its path (CTX-11)."""

    path: str
    default: str | None = None

    @property
    def property(self) -> DistinguishedField:
        return DistinguishedField(self.path)


class Schema(_Stored):
    """One message type. ``body`` is where the documents of an envelope stand: they are the elements inside of what it
    selects."""

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
    """The schemas that a pipeline reads by; a message type is there once (TYP-05)."""

    schemas: tuple[Schema, ...] = ()

    def find(self, message_type: str) -> Schema | None:
        return self._by_type.get(message_type)

    @cached_property
    def _by_type(self) -> dict[str, Schema]:
        return {schema.message_type: schema for schema in self.schemas}

    @cached_property
    def properties(self) -> tuple[Property, ...]:
        """Everything that a message may get by these schemas, each once; distinguished fields too."""
        found = {prop.key: prop for schema in self.schemas for prop in schema.properties}
        return tuple(found[key] for key in sorted(found))

    def __len__(self) -> int:
        return len(self.schemas)
