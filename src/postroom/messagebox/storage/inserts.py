"""The calls that insert single messages of the direct lane."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from postroom.message import FRAGMENT_SIZE, Message, Part
from postroom.messagebox.connection import Call

_INSERT_MESSAGE = (
    "insert_message(%s::bigint, %s::uuid, %s::jsonb, %s::bigint[], %s::uuid[], %s::smallint[], %s::uuid[],"
    " %s::uuid, %s::text, %s::text, %s::text, %s::bigint, %b::bytea)"
)
_INSERT_PART = "insert_part(%s::uuid, %s::text, %s::text, %s::text, %s::bigint, %b::bytea)"


def build_inserts(
    version: int, message: Message, routes: tuple[list[int], list[uuid.UUID], list[int]]
) -> Iterator[Call]:
    """Yield the calls that insert a message with its body part, and its other parts."""
    body = message.body
    part_ids = [part.part_id for part in message.parts]
    head = version, message.message_id, message.context.to_json(), *routes, part_ids
    yield _INSERT_MESSAGE, (*head, *((None,) * 6 if body is None else _get_values(body)))
    for part in message.parts:
        if body is not None and part is not body:
            yield _INSERT_PART, _get_values(part)


def _get_values(part: Part) -> tuple[object, ...]:
    data = None if part.body.size > FRAGMENT_SIZE else part.data
    return part.part_id, part.name, part.content_type, part.charset, part.body.size, data
