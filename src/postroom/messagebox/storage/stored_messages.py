"""Messages as a host hands them over: built from a claimed row, with large bodies left in the MessageBox until read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from postroom.errors import MessageGone
from postroom.message import CHUNK_SIZE, FRAGMENT_SIZE, Body, Bytes, Message, Part, create_stored_message
from postroom.messagebox.queues import ClaimedMessage, StoredPart
from postroom.messagebox.storage.stored_context import StoredContext

_NOTHING: Mapping[str, str | int] = MappingProxyType({})
_FRAGMENTS_AT_A_TIME = max(1, CHUNK_SIZE // FRAGMENT_SIZE)


class ClaimReader(Protocol):
    """Reads what belongs to claimed messages, from any thread."""

    def parts(self, claimed: ClaimedMessage) -> list[StoredPart]: ...

    def fragments(
        self, claimed: ClaimedMessage, part_id: uuid.UUID, *, start: int, count: int
    ) -> list[tuple[int, bytes]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentedBody:
    """A body that stands in fragments: read a few at a time, as long as the claim holds."""

    reader: ClaimReader
    claimed: ClaimedMessage
    part_id: uuid.UUID
    size: int

    def chunks(self) -> Iterator[bytes]:
        start = read = 0
        while read < self.size:
            fragments = self.reader.fragments(self.claimed, self.part_id, start=start, count=_FRAGMENTS_AT_A_TIME)
            if not fragments:
                raise MessageGone(
                    f"Part {self.part_id} of message {self.claimed.message_id} has {read} of its {self.size} bytes.",
                    hint="Run 'postroom check'. Terminate the instance and have the message sent again.",
                )
            for number, body in fragments:
                start = number + 1
                read += len(body)
                yield body


def message_of(claimed: ClaimedMessage, reader: ClaimReader, added: Mapping[str, str | int] = _NOTHING) -> Message:
    """The message of a claimed row. Of one with a small body alone, everything came with the claim.

    ``added`` (text and numbers) are written to its context, by property key, in place of what it says about them.
    """
    if claimed.context is None:
        raise MessageGone(
            f"Message {claimed.message_id} is not in the spool.",
            hint="Run 'postroom check'. Terminate the instance and have the message sent again.",
        )
    context = StoredContext(claimed.context, added, claimed.originator)
    parts: tuple[Part, ...]
    if claimed.part_count == 1 and claimed.body is not None:
        assert claimed.body_part_id is not None
        assert claimed.body_part_name is not None
        assert claimed.content_type is not None
        return create_stored_message(
            claimed.message_id,
            context,
            claimed.body_part_id,
            claimed.body_part_name,
            claimed.body,
            claimed.content_type,
            claimed.charset,
        )
    if claimed.part_count:
        parts = tuple(_part(stored, claimed, reader) for stored in reader.parts(claimed))
        if len(parts) < claimed.part_count:
            raise MessageGone(
                f"Message {claimed.message_id} has {len(parts)} of its {claimed.part_count} parts.",
                hint="Run 'postroom check'. Terminate the instance and have the message sent again.",
            )
    else:
        parts = ()
    return Message(
        context=context,
        parts=parts,
        body_part_name=claimed.body_part_name,
        message_id=claimed.message_id,
    )


def _part(stored: StoredPart, claimed: ClaimedMessage, reader: ClaimReader) -> Part:
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
