"""Reads the messages in the spool, for operators: contexts, and parts in pieces."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from postroom.errors import NotFound
from postroom.message import Body, Context, Message, Part
from postroom.messagebox.connection import Connection, read_records
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.claimed_messages import set_originator
from postroom.system_properties import BTS, ErrorReport

_CHUNKS_PER_FETCH = 10


@dataclass(frozen=True, kw_only=True)
class MessageListing:
    """A message in a list."""

    message_id: uuid.UUID
    published_at: datetime
    published_by: str
    message_type: str | None
    failed_at: str | None
    """Of an error message: the port where the original failed."""
    parts: int
    body_part: str | None
    size: int


@dataclass(frozen=True, kw_only=True)
class PartListing:
    """A part without its content."""

    part_id: uuid.UUID
    name: str
    content_type: str
    charset: str | None
    size: int
    is_body: bool


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """A message without the content of its parts."""

    message_id: uuid.UUID
    context: Context
    original_context: Context
    """The context as it was stored, without the originator that the MessageBox adds."""
    parts: tuple[PartListing, ...]
    published_at: datetime
    published_by: str


class LatestMessage(NamedTuple):
    """A message of the spool without its parts."""

    message_id: uuid.UUID
    published_at: datetime
    context: Context


class BadRowMessage(NamedTuple):
    """A row of a bulk file that could not be read and can be resumed."""

    instance_id: uuid.UUID
    context: Context
    body: bytes


def list_messages(
    connection: Connection, *, message_type: str | None = None, limit: int | None = None
) -> list[MessageListing]:
    """Return the messages in the spool, the latest first."""
    conditions = {
        "type": message_type,
        "type_key": BTS.MessageType.key,
        "send_port_key": ErrorReport.SendPortName.key,
        "receive_port_key": ErrorReport.ReceivePortName.key,
        "limit": limit,
    }
    return read_records(connection, MessageListing, statement("queries/list_messages"), conditions)


def get_message(connection: Connection, message_id: uuid.UUID) -> StoredMessage:
    """Return the message. Raise NotFound if there is none with this id."""
    row = connection.execute(statement("queries/read_message"), (message_id,)).fetchone()
    if row is None:
        raise NotFound(
            f"There is no message {message_id}.",
            why="A message is deleted when no instance refers to it any more.",
            hint="See 'postroom message list'.",
        )
    context, part_ids, body_part_id, _, published_at, published_by, *originator = row
    original = Context.from_json(context)
    set_originator(context["promoted"], context["written"], (originator[0], originator[1]))
    parts = connection.execute(statement("queries/describe_parts"), (part_ids,))
    return StoredMessage(
        message_id=message_id,
        context=Context.from_json(context),
        original_context=original,
        parts=tuple(
            PartListing(
                part_id=part_id,
                name=name,
                content_type=content_type,
                charset=charset,
                size=size,
                is_body=part_id == body_part_id,
            )
            for part_id, name, content_type, charset, size in parts
        ),
        published_at=published_at,
        published_by=published_by,
    )


def find_message_id(connection: Connection, message_or_instance_id: uuid.UUID) -> uuid.UUID | None:
    """Return the message id for the id of a message or of an instance. Return None if it is neither."""
    for query in (
        "SELECT message_id FROM spool WHERE message_id = %s",
        "SELECT message_id FROM instances WHERE instance_id = %s",
    ):
        row = connection.execute(query, (message_or_instance_id,)).fetchone()
        if row is not None:
            found: uuid.UUID = row[0]
            return found
    return None


def read_latest_messages(
    connection: Connection, limit: int | None, *, batch_size: int
) -> Iterator[list[LatestMessage]]:
    """Yield the messages in the spool in batches, the latest first."""
    with connection.transaction(), connection.cursor(name="newest_messages") as cursor:
        cursor.execute(statement("queries/newest_messages"), {"limit": limit})
        while ids := [message_id for (message_id,) in cursor.fetchmany(batch_size)]:
            stored = {message.message_id: message for message in _read_contexts(connection, ids)}
            yield [stored[message_id] for message_id in ids if message_id in stored]


def _read_contexts(connection: Connection, ids: Sequence[uuid.UUID]) -> Iterator[LatestMessage]:
    rows = connection.execute(statement("queries/read_contexts"), (list(ids),))
    for message_id, published_at, context, originator_sid, originator_pid in rows:
        set_originator(context["promoted"], context["written"], (originator_sid, originator_pid))
        yield LatestMessage(message_id, published_at, Context.from_json(context))


def read_suspended_rows(connection: Connection, interchange_id: object) -> Iterator[BadRowMessage]:
    """Yield the rows of a bulk file that can be resumed."""
    found = connection.execute(statement("queries/list_suspended_rows"), (interchange_id,)).fetchall()
    for instance_id, context, part_id, body in found:
        content = bytes(body) if body is not None else b"".join(_read_part(connection, part_id))
        yield BadRowMessage(instance_id, Context.from_json(context), content)


def _read_part(connection: Connection, part_id: uuid.UUID) -> list[bytes]:
    return [piece for (piece,) in connection.execute(statement("queries/read_part"), {"part_id": part_id})]


def read_part(connection: Connection, part: PartListing) -> Iterator[bytes]:
    """Yield the content of a part in chunks, because it may be larger than memory. Keeps a transaction open."""
    with connection.transaction(), connection.cursor(name=f"part_{part.part_id.hex}") as cursor:
        cursor.itersize = _CHUNKS_PER_FETCH
        cursor.execute(statement("queries/read_part"), {"part_id": part.part_id}, binary=True)
        for (chunk,) in cursor:
            yield chunk


def load_message(connection: Connection, message: StoredMessage) -> Message:
    """Return the message with parts that read their content from the MessageBox on demand."""
    parts = [
        Part(
            name=part.name,
            body=_StoredBody(connection, part),
            content_type=part.content_type,
            charset=part.charset,
            part_id=part.part_id,
        )
        for part in message.parts
    ]
    name = next((part.name for part in message.parts if part.is_body), None)
    return Message(context=message.context, parts=tuple(parts), body_part_name=name, message_id=message.message_id)


@dataclass(frozen=True)
class _StoredBody(Body):
    """A body that is read from the MessageBox in chunks."""

    connection: Connection
    part: PartListing

    @property
    def size(self) -> int:
        return self.part.size

    def chunks(self) -> Iterator[bytes]:
        return read_part(self.connection, self.part)
