"""A whole message as a stream of bytes: a head with the context and the parts, then the bodies of the parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from postroom.message import Context, Message, Part
from postroom.temporary_bodies import slice_body, spool

MESSAGE_TYPE = "application/vnd.postroom.message"
_LENGTH_BYTES = 8


class _Part(msgspec.Struct, frozen=True):
    name: str
    content_type: str
    charset: str | None
    size: int


class _Head(msgspec.Struct, frozen=True):
    context: str
    body_part_name: str | None
    parts: list[_Part]


def encode_message(message: Message) -> Iterator[bytes]:
    """Yield a message in chunks."""
    parts = [_Part(part.name, part.content_type, part.charset, part.body.size) for part in message.parts]
    head = msgspec.json.encode(_Head(message.context.to_json(), message.body_part_name, parts))
    yield len(head).to_bytes(_LENGTH_BYTES, "big")
    yield head
    for part in message.parts:
        yield from part.body.chunks()


def decode_message(chunks: Iterable[bytes]) -> Message:
    """Return an encoded message, with new ids. Its bodies are in memory or in a temporary file."""
    content = spool(chunks)
    length = int.from_bytes(b"".join(slice_body(content, 0, _LENGTH_BYTES).chunks()), "big")
    head = msgspec.json.decode(b"".join(slice_body(content, _LENGTH_BYTES, length).chunks()), type=_Head)
    position = _LENGTH_BYTES + length
    parts = []
    for part in head.parts:
        body = slice_body(content, position, part.size)
        parts.append(Part(name=part.name, body=body, content_type=part.content_type, charset=part.charset))
        position += part.size
    return Message(context=Context.from_json(head.context), parts=tuple(parts), body_part_name=head.body_part_name)
