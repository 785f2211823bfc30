"""Stored messages: contexts, parts, and the instances that refer to them (INS-17)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from psycopg.rows import class_row

from postroom.errors import NotFound, StateError
from postroom.message import Body, Context, Message, Part
from postroom.messagebox.configuration.properties import read_sensitive_keys
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.messagebox.storage.stored_messages import set_originator
from postroom.operations.instances.listing import Instance, InstanceQuery, InstanceState, list_instances
from postroom.operations.properties import PropertyListing, RequiredProperty, list_context, list_required
from postroom.operations.redaction import redact_context
from postroom.operations.short_ids import ShortId, find_id
from postroom.system_properties import BTS, ErrorReport

_CHUNKS_PER_FETCH = 10
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


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
class StoredPart:
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
    parts: tuple[StoredPart, ...]
    published_at: datetime
    published_by: str


@dataclass(frozen=True, kw_only=True)
class ReferringInstance:
    """An instance that refers to a message."""

    instance_id: uuid.UUID
    state: InstanceState
    service: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class MessageDetails:
    """A message with its properties, without the content of its parts. Values of sensitive properties are hidden."""

    message_id: uuid.UUID
    published_at: datetime
    published_by: str
    context: Sequence[PropertyListing]
    predicates: Sequence[RequiredProperty]
    parts: Sequence[StoredPart]
    instances: Sequence[ReferringInstance]


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
    with connection.cursor(row_factory=class_row(MessageListing)) as cursor:
        return cursor.execute(statement("queries/list_messages"), conditions).fetchall()


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
    set_originator(context["promoted"], context["written"], (originator[0], originator[1]))
    parts = connection.execute(statement("queries/describe_parts"), (part_ids,))
    return StoredMessage(
        message_id=message_id,
        context=Context.from_json(context),
        parts=tuple(
            StoredPart(
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


def get_message_details(connection: Connection, message_id: uuid.UUID) -> MessageDetails:
    """Return the message with its properties and instances. Raise NotFound if there is none with this id."""
    message = get_message(connection, message_id)
    shown = redact_context(message.context, read_sensitive_keys(connection))
    return MessageDetails(
        message_id=message.message_id,
        published_at=message.published_at,
        published_by=message.published_by,
        context=list_context(shown),
        predicates=list_required(shown.predicates),
        parts=message.parts,
        instances=[
            ReferringInstance(
                instance_id=instance.instance_id,
                state=instance.state,
                service=instance.service,
                reason=instance.reason,
            )
            for instance in list_referring_instances(connection, message_id)
        ],
    )


def resolve_message_id(connection: Connection, given: ShortId) -> uuid.UUID:
    """Return the message id for the id of a message or of an instance. Raise NotFound if it is neither."""
    some_id = find_id(connection, given, "message")
    for query in (
        "SELECT message_id FROM spool WHERE message_id = %s",
        "SELECT message_id FROM instances WHERE instance_id = %s",
    ):
        row = connection.execute(query, (some_id,)).fetchone()
        if row is not None:
            found: uuid.UUID = row[0]
            return found
    raise NotFound(
        f"There is no message and no instance {some_id}.",
        why="A message is deleted when no instance refers to it any more.",
        hint="See 'postroom message list' and 'postroom instance list'.",
    )


def list_referring_instances(connection: Connection, message_id: uuid.UUID) -> list[Instance]:
    """Return the instances that refer to this message. The message is kept as long as there is one."""
    return list_instances(connection, InstanceQuery(message_id=message_id))


def find_part(message: StoredMessage, name: str | None) -> StoredPart:
    """Return the part with this name, or the body part. Raise NotFound, which lists the parts, if there is none."""
    for part in message.parts:
        if part.is_body if name is None else part.name == name:
            return part
    wanted = "no body" if name is None else f"no part {name!r}"
    names = ", ".join(part.name for part in message.parts)
    parts = f"Its parts are: {names}." if names else "It has no parts, only properties."
    raise NotFound(f"Message {message.message_id} has {wanted}.", why=parts)


def read_part(connection: Connection, part: StoredPart) -> Iterator[bytes]:
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
    part: StoredPart

    @property
    def size(self) -> int:
        return self.part.size

    def chunks(self) -> Iterator[bytes]:
        return read_part(self.connection, self.part)


def save_message(connection: Connection, message_id: uuid.UUID, folder: Path) -> list[Path]:
    """Write the context and the parts as files into ``folder``/<message id> and return their paths.

    Raise StateError if the folder exists: files are never overwritten."""
    message = get_message(connection, message_id)
    target = folder / str(message_id)
    try:
        target.mkdir(parents=True)
    except FileExistsError:
        raise StateError(
            f"{target} already exists.", hint="Remove it, or save the message into another folder."
        ) from None
    except OSError as error:
        raise StateError(
            f"{target} cannot be created.", why=f"{error.strerror}.", hint="Choose another folder."
        ) from None
    saved = [target / "context.json"]
    # The stored form, indented: promoted and written properties by key, values with their types.
    stored = json.loads(redact_context(message.context, read_sensitive_keys(connection)).to_json())
    saved[0].write_text(json.dumps(stored, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for number, part in enumerate(message.parts, 1):
        path = target / _to_file_name(part, number)
        with path.open("xb") as file:
            for chunk in read_part(connection, part):
                file.write(chunk)
        saved.append(path)
    return saved


def _to_file_name(part: StoredPart, number: int) -> str:
    """Return a safe file name for a part. The sender chose the part's name, so it may contain a path."""
    safe = _UNSAFE.sub("_", part.name).strip(".")[:100]
    return f"{number:02d}-{safe or 'part'}"
