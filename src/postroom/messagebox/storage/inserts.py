"""The statements that insert single messages of the direct lane, all in one round trip."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from postroom.message import FRAGMENT_SIZE, Message, Part
from postroom.messagebox.connection import Call, Connection, Precondition, call_blocking

_INSERT = (
    "insert_message(%s::uuid, %s::bigint, %s::uuid, %s::jsonb, %s::bigint[], %s::uuid[], %s::smallint[],"
    " %s::uuid[], %s::uuid, %s::text, %s::text, %s::text, %s::bigint, %b::bytea)"
)
_INSERT_PART = "SELECT insert_part(%s::uuid, %s::text, %s::text, %s::text, %s::bigint, %b::bytea)"


def build_inserts(
    batch_id: uuid.UUID,
    version: int,
    message: Message,
    routes: tuple[list[int], list[uuid.UUID], list[int]],
    *,
    precondition: Precondition | None,
) -> Iterator[Call]:
    """Yield the statements that insert a message, if the precondition changes something, and its other parts."""
    body = message.body
    part_ids = [part.part_id for part in message.parts]
    head = batch_id, version, message.message_id, message.context.to_json(), *routes, part_ids
    body_values: tuple[object, ...] = (None,) * 6
    if body is not None:
        body_values = (body.part_id, body.name, body.content_type, body.charset, body.body.size, _get_inline_data(body))
    if precondition is None:
        yield f"SELECT {_INSERT}", (*head, *body_values)
    else:
        yield precondition.select_if_applied(_INSERT, *head, *body_values)
    for part in message.parts:
        if body is not None and part is not body:
            yield (
                _INSERT_PART,
                (part.part_id, part.name, part.content_type, part.charset, part.body.size, _get_inline_data(part)),
            )


def execute_in_one_round_trip(connection: Connection, calls: Sequence[Call]) -> bool:
    """Execute the statements in one round trip, because the first one takes the routing lock. Return False if its
    precondition has changed nothing."""
    if len(calls) == 1:
        [(query, arguments)] = calls
        return call_blocking(connection, query, *arguments).ntuples == 1
    with connection.pipeline():
        cursors = [connection.execute(query, arguments) for query, arguments in calls]
    return cursors[0].fetchone() is not None


def _get_inline_data(part: Part) -> bytes | None:
    return None if part.body.size > FRAGMENT_SIZE else part.data
