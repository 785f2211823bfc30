"""Messages that are built from claimed rows. Contexts are decoded and large bodies are read only when they are used."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec

from postroom.errors import MessageGone
from postroom.filters.authorisation import predicates_from_json
from postroom.message import (
    FRAGMENTS_AT_A_TIME,
    Body,
    Bytes,
    Context,
    Message,
    Part,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues, StoredPart
from postroom.system_properties import BTS
from postroom.values import Value, value_from_json

T = TypeVar("T")

_decode = msgspec.json.Decoder().decode
_Encoded = dict[str, object]

#: The account that published a message, and its source party. Stored separately from the context (ADR 0034).
Originator = tuple[str, str]


class StoredContext(Context):
    """A context that is decoded from its stored text at its first use. Many adapters need only the body.

    ``added`` (JSON values, by property key) and ``originator`` replace stored values.
    """

    __slots__ = ("_added", "_originator", "_raw", "_text")

    def __init__(self, text: str, added: Mapping[str, object], originator: Originator | None = None) -> None:
        # The slots of the base class stay empty until __getattr__ is called for them.
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
        # Counting does not need the decoded values.
        promoted, written, _ = self._raw or self._read()
        return len(promoted) + len(written)

    def _read(self) -> tuple[_Encoded, _Encoded, list[Any]]:
        raw: dict[str, Any] = _decode(self._text)
        promoted, written = raw.get("promoted", {}), raw.get("written", {})
        if self._originator is not None:
            set_originator(promoted, written, self._originator)
        written.update(self._added)
        if not self._added.keys().isdisjoint(promoted):
            promoted = {key: value for key, value in promoted.items() if key not in self._added}
        self._raw = promoted, written, raw.get("predicates", [])
        return self._raw

    def __reduce__(self) -> Any:
        return Context, (dict(self.promoted), dict(self.written), self.predicates)


def set_originator(promoted: dict[str, Any], written: dict[str, Any], originator: Originator) -> None:
    """Replace the originator in a decoded context. A promoted property stays promoted."""
    for prop, value in zip((BTS.OriginatorSID, BTS.OriginatorPID), originator, strict=True):
        (promoted if prop.key in promoted else written)[prop.key] = value


def _values(encoded: _Encoded) -> dict[str, Value]:
    # Text and integers are stored without a type.
    return {
        key: value if type(value) is str or type(value) is int else value_from_json(value)
        for key, value in encoded.items()
    }


_NOTHING: Mapping[str, object] = MappingProxyType({})


class ClaimReader(Protocol):
    """Reads the parts of claimed messages, from any thread."""

    def read_claimed(self, query: Callable[[HostQueues, Connection], T]) -> T:
        """Call a query of the queues on the connection of the reader."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionReader:
    """Reads claimed messages over one connection."""

    connection: Connection
    queues: HostQueues

    def read_claimed(self, query: Callable[[HostQueues, Connection], T]) -> T:
        return query(self.queues, self.connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentedBody:
    """A body in fragments, read a few at a time while the claim is valid."""

    reader: ClaimReader
    claimed: ClaimedMessage
    part_id: uuid.UUID
    size: int

    def chunks(self) -> Iterator[bytes]:
        start = read = 0
        while read < self.size:
            fragments = self.reader.read_claimed(partial(self._read_fragments, start))
            if not fragments:
                raise MessageGone(
                    f"Part {self.part_id} of message {self.claimed.message_id} has {read} of its {self.size} bytes.",
                    hint="Run 'postroom check'. Terminate the instance, and ask the sender to send the message again.",
                )
            for number, body in fragments:
                start = number + 1
                read += len(body)
                yield body

    def _read_fragments(self, start: int, queues: HostQueues, connection: Connection) -> list[tuple[int, bytes]]:
        return queues.read_fragments(connection, self.claimed, self.part_id, start=start, count=FRAGMENTS_AT_A_TIME)


def build_message(claimed: ClaimedMessage, reader: ClaimReader, added: Mapping[str, object] = _NOTHING) -> Message:
    """Return the message of a claimed row. A message with one small part needs no further query.

    ``added`` (JSON values, by property key) replace values of the context.
    """
    if claimed.context is None:
        raise MessageGone(
            f"Message {claimed.message_id} is not in the spool.",
            hint="Run 'postroom check'. Terminate the instance, and ask the sender to send the message again.",
        )
    context = StoredContext(claimed.context, added, claimed.originator)
    parts: tuple[Part, ...]
    if claimed.part_count == 1 and claimed.body is not None:
        assert claimed.body_part_id is not None
        assert claimed.body_part_name is not None
        assert claimed.content_type is not None
        return _create_message(
            claimed.message_id,
            context,
            claimed.body_part_id,
            claimed.body_part_name,
            claimed.body,
            claimed.content_type,
            claimed.charset,
        )
    if claimed.part_count:
        found = reader.read_claimed(lambda queues, connection: queues.read_parts(connection, claimed))
        parts = tuple(_build_part(stored, claimed, reader) for stored in found)
        if len(parts) < claimed.part_count:
            raise MessageGone(
                f"Message {claimed.message_id} has {len(parts)} of its {claimed.part_count} parts.",
                hint="Run 'postroom check'. Terminate the instance, and ask the sender to send the message again.",
            )
    else:
        parts = ()
    return Message(
        context=context,
        parts=parts,
        body_part_name=claimed.body_part_name,
        message_id=claimed.message_id,
    )


def _build_part(stored: StoredPart, claimed: ClaimedMessage, reader: ClaimReader) -> Part:
    body: Body
    if stored.body is not None:
        body = Bytes(stored.body)
    else:
        body = FragmentedBody(reader=reader, claimed=claimed, part_id=stored.part_id, size=stored.size)
    return Part(
        name=stored.name,
        body=body,
        content_type=stored.content_type,
        charset=stored.charset,
        part_id=stored.part_id,
    )


def _create_message(
    message_id: uuid.UUID,
    context: Context,
    part_id: uuid.UUID,
    name: str,
    body: bytes,
    content_type: str,
    charset: str | None,
) -> Message:
    """Create a message of one part from values that were checked before they were stored.

    It runs for every delivered message and bypasses the constructors: a frozen dataclass sets its fields one by one,
    which takes longer than the rest of the delivery.
    """
    part = object.__new__(Part)
    object.__setattr__(
        part,
        "__dict__",
        {"name": name, "body": Bytes(body), "content_type": content_type, "charset": charset, "part_id": part_id},
    )
    message = object.__new__(Message)
    object.__setattr__(
        message,
        "__dict__",
        {"context": context, "parts": (part,), "body_part_name": name, "message_id": message_id},
    )
    return message
