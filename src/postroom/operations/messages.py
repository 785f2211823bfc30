"""Stored messages: contexts, parts, and the instances that refer to them (INS-17)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from postroom.errors import NotFound, StateError
from postroom.messagebox.configuration.properties import read_sensitive_keys
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import Instance, InstanceQuery, InstanceState, list_instances
from postroom.messagebox.storage.spool import PartListing, StoredMessage, find_message_id, get_message, read_part
from postroom.messagebox.storage.spool import list_messages as list_messages
from postroom.operations.properties import PropertyListing, RequiredProperty, list_context, list_required
from postroom.operations.redaction import redact_context
from postroom.operations.short_ids import ShortId, find_id

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


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
    parts: Sequence[PartListing]
    instances: Sequence[ReferringInstance]


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
    found = find_message_id(connection, some_id)
    if found is not None:
        return found
    raise NotFound(
        f"There is no message and no instance {some_id}.",
        why="A message is deleted when no instance refers to it any more.",
        hint="See 'postroom message list' and 'postroom instance list'.",
    )


def list_referring_instances(connection: Connection, message_id: uuid.UUID) -> list[Instance]:
    """Return the instances that refer to this message. The message is kept as long as there is one."""
    return list_instances(connection, InstanceQuery(message_id=message_id))


def find_part(message: StoredMessage, name: str | None) -> PartListing:
    """Return the part with this name, or the body part. Raise NotFound, which lists the parts, if there is none."""
    for part in message.parts:
        if part.is_body if name is None else part.name == name:
            return part
    wanted = "no body" if name is None else f"no part {name!r}"
    names = ", ".join(part.name for part in message.parts)
    parts = f"Its parts are: {names}." if names else "It has no parts, only properties."
    raise NotFound(f"Message {message.message_id} has {wanted}.", why=parts)


def read_message_part(connection: Connection, message_id: uuid.UUID, name: str | None) -> Iterator[bytes]:
    """Yield the content of the part with this name, or of the body. Raise NotFound if the message has none."""
    yield from read_part(connection, find_part(get_message(connection, message_id), name))


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


def _to_file_name(part: PartListing, number: int) -> str:
    """Return a safe file name for a part. The sender chose the part's name, so it may contain a path."""
    safe = _UNSAFE.sub("_", part.name).strip(".")[:100]
    return f"{number:02d}-{safe or 'part'}"
