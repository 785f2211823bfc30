"""Messages: a typed context and named parts. Messages are immutable.

message = Message.of(b'{"region": "EU"}', promoted={Region: "EU"})
changed = message.with_context(message.context.promote(Region, "US"))    # another message, with another id
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol, TypeVar, cast, overload

from postroom.errors import BadValue
from postroom.files.safe_files import open_regular_file
from postroom.filters.authorisation import MessagePredicate, predicates_from_json, predicates_to_json
from postroom.properties import Property
from postroom.values import Value, ValueType, check_value, type_of, value_from_json, value_to_json

T = TypeVar("T")
D = TypeVar("D")

#: A larger body is stored in fragments of this size and is never in memory as a whole.
FRAGMENT_SIZE = 102_400

#: The maximum number of parts of a received message.
MAX_PARTS = 1_000

#: The number of bytes of a streamed body that are in memory at a time.
CHUNK_SIZE = 1 << 20
FRAGMENTS_AT_A_TIME = max(1, CHUNK_SIZE // FRAGMENT_SIZE)

#: The default name of the body part.
BODY_NAME = "body"


@cache
def _get_json_encoder() -> Callable[[Any], bytes]:
    """Return an encoder that sorts keys, so that equal contexts have the same text."""
    # msgspec is needed to run a pipeline, not to define one.
    import msgspec

    return msgspec.json.Encoder(order="deterministic").encode


class Body(Protocol):
    """The content of a part. It may be too large for memory."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces. Every call starts from the beginning."""
        ...


@dataclass(frozen=True, slots=True)
class Bytes:
    """A body in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def chunks(self) -> Iterator[bytes]:
        yield self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice:
    """A body that stays in a file: ``length`` bytes from ``offset``."""

    path: Path
    offset: int = 0
    length: int
    inode: int | None = None
    """The inode number of the regular file that is expected. None accepts any file."""

    @property
    def size(self) -> int:
        return self.length

    def chunks(self) -> Iterator[bytes]:
        remaining = self.length
        with self._open() as file:
            file.seek(self.offset)
            while remaining:
                chunk = file.read(min(CHUNK_SIZE, remaining))
                if not chunk:
                    raise OSError(f"{self.path} ended {remaining} bytes early: it was cut short while it was read.")
                remaining -= len(chunk)
                yield chunk

    def _open(self) -> BinaryIO:
        return self.path.open("rb") if self.inode is None else open_regular_file(self.path, inode=self.inode)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One named part. The engine does not interpret its content."""

    name: str = BODY_NAME
    body: Body
    content_type: str = "application/octet-stream"
    charset: str | None = None
    part_id: uuid.UUID = field(default_factory=uuid.uuid4)

    def __post_init__(self) -> None:
        for text in (self.name, self.content_type, self.charset or ""):
            check_value(ValueType.STR, text)

    @property
    def data(self) -> bytes:
        """The whole content, in memory."""
        return b"".join(self.body.chunks())


def format_content_type(part: Part) -> str:
    """Return the content type of a part with its charset, as a header of HTTP has it."""
    if part.charset and "charset" not in part.content_type.lower():
        return f"{part.content_type}; charset={part.charset}"
    return part.content_type


class Context(Mapping[Property, Value]):
    """The typed properties of a message, each written or promoted.

    A context is immutable: ``write`` and ``promote`` return a new one. Only promoted properties take part in routing.
    ``get`` returns None for a missing property; a context has no nulls.

    A context may have message predicates, which restrict the hosts that may receive the message.
    """

    __slots__ = ("_json", "_predicates", "_promoted", "_written")

    _json: str

    def __init__(
        self,
        promoted: Mapping[str, Value] | None = None,
        written: Mapping[str, Value] | None = None,
        predicates: Iterable[MessagePredicate] = (),
    ) -> None:
        self._promoted: MappingProxyType[str, Value] = MappingProxyType(dict(promoted or {}))
        self._written: MappingProxyType[str, Value] = MappingProxyType(dict(written or {}))
        self._predicates: frozenset[MessagePredicate] = frozenset(predicates)

    @property
    def promoted(self) -> Mapping[str, Value]:
        """The promoted values by property key. Only these are matched with filters."""
        return self._promoted

    @property
    def written(self) -> Mapping[str, Value]:
        """The values that do not take part in routing, by property key."""
        return self._written

    @property
    def predicates(self) -> frozenset[MessagePredicate]:
        """The application properties that a host must have, all of them, to receive the message."""
        return self._predicates

    def require(self, prop: Property, value: object) -> Context:
        """Return a context with one more message predicate: only hosts whose application property ``prop`` equals
        ``value`` receive the message. ``message.context.require(Thumbprint, "A909…")``"""
        _must_be_property(prop)
        checked = prop.check(value)
        if checked == "":
            raise BadValue(f"{prop.dotted_name}: the value of a message predicate is empty.", hint="Leave it out.")
        return Context(self._promoted, self._written, {*self._predicates, (prop.key, checked)})

    def promote(self, prop: Property, value: object) -> Context:
        """Return a context in which ``prop`` is promoted with ``value``. None removes the property."""
        _must_be_property(prop)
        if value is None:
            return self._without(prop.key)
        checked = prop.check(value)
        return self._replace(_add(self._promoted, prop.key, checked), _remove(self._written, prop.key))

    def write(self, prop: Property, value: object) -> Context:
        """Return a context in which ``prop`` is written, and not promoted. None removes the property."""
        _must_be_property(prop)
        if value is None:
            return self._without(prop.key)
        checked = prop.check(value, promoted=False)
        return self._replace(_remove(self._promoted, prop.key), _add(self._written, prop.key, checked))

    def merge(self, other: Context) -> Context:
        """Return a context with the values of both, each written or promoted as before. The other one has precedence.
        Its predicates are added."""
        promoted, written = self._promoted | other._promoted, self._written | other._written
        for key in other._written:
            promoted.pop(key, None)
        for key in other._promoted:
            written.pop(key, None)
        merged = self._replace(MappingProxyType(promoted), MappingProxyType(written))
        merged._predicates |= other._predicates
        return merged

    def demote_all(self) -> Context:
        """Return a context in which every property is written and none is promoted."""
        return Context({}, {**self._written, **self._promoted}, self._predicates)

    def is_promoted(self, prop: Property) -> bool:
        return prop.key in self._promoted

    def _without(self, key: str) -> Context:
        if key not in self._promoted and key not in self._written:
            return self
        return self._replace(_remove(self._promoted, key), _remove(self._written, key))

    def _replace(self, promoted: MappingProxyType[str, Value], written: MappingProxyType[str, Value]) -> Context:
        """Return a context with these values and the same predicates. Nothing is copied, because every message gets its
        context by a chain of calls."""
        context = Context.__new__(Context)
        context._promoted, context._written, context._predicates = promoted, written, self._predicates
        return context

    def __getitem__(self, prop: Property[T]) -> T:
        value = self.get(prop)
        if value is None:
            raise KeyError(f"The message has no property {prop.dotted_name}.")
        return value

    @overload
    def get(self, prop: Property[T], default: None = None, /) -> T | None: ...
    @overload
    def get(self, prop: Property[T], default: D, /) -> T | D: ...
    def get(self, prop: Property[Any], default: object = None, /) -> object:
        # Without the exception of Mapping.get: most properties are missing in most contexts, and publishing asks often.
        key = prop.key
        return self._promoted[key] if key in self._promoted else self._written.get(key, default)

    def __iter__(self) -> Iterator[Property]:
        for key in (*self._promoted, *self._written):
            value = self._promoted[key] if key in self._promoted else self._written[key]
            yield Property.from_key(key, type_of(value))

    def __len__(self) -> int:
        return len(self._promoted) + len(self._written)

    def __contains__(self, prop: object) -> bool:
        return isinstance(prop, Property) and (prop.key in self._promoted or prop.key in self._written)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context):
            return NotImplemented
        return (
            dict(self._promoted) == dict(other._promoted)
            and dict(self._written) == dict(other._written)
            and self._predicates == other._predicates
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        required = f", predicates={sorted(self._predicates, key=str)!r}" if self._predicates else ""
        return f"Context(promoted={dict(self._promoted)!r}, written={dict(self._written)!r}{required})"

    def to_json(self) -> str:
        """Return the stored form: ``{"promoted": {key: value}, "written": {key: value}}``, and with message predicates
        ``"predicates": [[key, value]]``. Equal contexts have the same text."""
        try:
            return self._json
        except AttributeError:
            pass
        stored: dict[str, object] = {
            "promoted": {key: value_to_json(value) for key, value in self._promoted.items()},
            "written": {key: value_to_json(value) for key, value in self._written.items()},
        }
        if self._predicates:
            stored["predicates"] = predicates_to_json(self._predicates)
        # Kept, because a publish with an idempotency key needs it twice.
        self._json = _get_json_encoder()(stored).decode()
        return self._json

    @classmethod
    def from_json(cls, stored: str | bytes | Mapping[str, Any]) -> Context:
        """The inverse of ``to_json``. Accepts the text, or the object that PostgreSQL's driver decoded."""
        decoded = json.loads(stored) if isinstance(stored, str | bytes) else stored
        return cls(
            {key: value_from_json(value) for key, value in decoded.get("promoted", {}).items()},
            {key: value_from_json(value) for key, value in decoded.get("written", {}).items()},
            predicates_from_json(decoded.get("predicates", ())),
        )


def _must_be_property(prop: object) -> None:
    if not isinstance(prop, Property):
        raise BadValue(f"{prop!r} is not a property.", hint='Pass a Property, such as Property("Orders.Region", str).')


def _add(values: MappingProxyType[str, Value], key: str, value: Value) -> MappingProxyType[str, Value]:
    """Return the values with another one, at the end."""
    changed = dict(values)
    changed.pop(key, None)
    changed[key] = value
    return MappingProxyType(changed)


def _remove(values: MappingProxyType[str, Value], key: str) -> MappingProxyType[str, Value]:
    """Return the values without this one."""
    if key not in values:
        return values
    return MappingProxyType({other: value for other, value in values.items() if other != key})


def _content(body: object) -> Body:
    """Convert a caller's argument to a body. Raise BadValue for anything but bytes and bodies."""
    match body:
        case bytes():
            return Bytes(body)
        case bytearray() | memoryview():
            return Bytes(bytes(body))
        case str():
            hint = "Encode it: body.encode()."
        case _ if callable(getattr(body, "chunks", None)) and hasattr(body, "size"):
            return cast(Body, body)
        case _:
            hint = "Pass bytes, such as json.dumps(...).encode(), or a Body (Bytes, FileSlice)."
    raise BadValue(f"The body of a message is bytes, not {type(body).__name__}.", hint=hint)


@dataclass(frozen=True, kw_only=True)
class Message:
    """A context and any number of parts. If there are parts, exactly one of them is the body part."""

    context: Context = field(default_factory=Context)
    parts: tuple[Part, ...] = ()
    body_part_name: str | None = None
    message_id: uuid.UUID = field(default_factory=uuid.uuid4)

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if len(names) > 1 and len(set(names)) != len(names):
            raise BadValue(f"Two parts of one message have the same name: {', '.join(names)}.")
        if self.parts and self.body_part_name is None:
            object.__setattr__(self, "body_part_name", names[0])
        if self.body_part_name is not None and self.body_part_name not in names:
            raise BadValue(
                f"The body part {self.body_part_name!r} is not one of the parts: {', '.join(names) or 'none'}."
            )

    def __deepcopy__(self, _: object) -> Message:
        return self  # it never changes

    @classmethod
    def of(
        cls,
        body: bytes | bytearray | memoryview | Body | None = None,
        *,
        promoted: Mapping[Property, object] | None = None,
        written: Mapping[Property, object] | None = None,
        predicates: Mapping[Property, object] | None = None,
        parts: Iterable[Part] = (),
        content_type: str = "application/octet-stream",
    ) -> Message:
        """Create a message: ``Message.of(b"...", promoted={Region: "EU"})``. ``parts`` follow the body. For
        ``predicates`` see ``Context.require``."""
        context = Context()
        for prop, value in (predicates or {}).items():
            context = context.require(prop, value)
        for prop, value in (written or {}).items():
            context = context.write(prop, value)
        for prop, value in (promoted or {}).items():
            context = context.promote(prop, value)
        content = None if body is None else _content(body)
        first = () if content is None else (Part(body=content, content_type=content_type),)
        return cls(context=context, parts=(*first, *parts))

    @property
    def body(self) -> Part | None:
        """The body part, or None for a message without parts."""
        if len(self.parts) == 1:
            return self.parts[0]
        return next((part for part in self.parts if part.name == self.body_part_name), None)

    @property
    def data(self) -> bytes:
        """The whole content of the body part, in memory. Empty for a message without parts."""
        return b"" if self.body is None else self.body.data

    def with_body(self, body: bytes | Body) -> Message:
        """Return a new message with this content in its body part and everything else unchanged."""
        content = _content(body)
        if self.body is None:
            return Message(context=self.context, parts=(Part(body=content), *self.parts))
        parts = tuple(
            replace(part, part_id=uuid.uuid4(), body=content if part.name == self.body_part_name else part.body)
            for part in self.parts
        )
        return Message(context=self.context, parts=parts, body_part_name=self.body_part_name)

    def with_context(self, context: Context) -> Message:
        """Return a new message with this context and the same content. The message and its parts have new ids."""
        parts = tuple(replace(part, part_id=uuid.uuid4()) for part in self.parts)
        return Message(context=context, parts=parts, body_part_name=self.body_part_name)


def split_into_fragments(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split content into fragments. The last fragment may be smaller."""
    pending = bytearray()
    for chunk in chunks:
        pending += chunk
        while len(pending) >= FRAGMENT_SIZE:
            yield bytes(pending[:FRAGMENT_SIZE])
            del pending[:FRAGMENT_SIZE]
    if pending:
        yield bytes(pending)
