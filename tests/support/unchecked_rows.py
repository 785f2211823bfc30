"""Write rows into a MessageBox without the Message Agent, as a login in the wrong hands could."""

from __future__ import annotations

import uuid
from typing import Any

from psycopg import sql

from postroom.message import Context
from postroom.messagebox.connection import Connection

#: Statements that wait for rows.
COPY_PARTS = "COPY parts (part_id) FROM STDIN"
COPY_ORIGINATORS = "COPY spool (message_id, part_ids, context, originator_sid) FROM STDIN"


def insert_part(connection: Connection, part_id: uuid.UUID, body: bytes) -> None:
    connection.execute(
        "INSERT INTO parts (part_id, name, content_type, size, body) VALUES (%s, 'body', '', %s, %s)",
        (part_id, len(body), body),
    )


def insert_message(
    connection: Connection,
    message_id: uuid.UUID,
    context: Context,
    *,
    part_id: uuid.UUID | None = None,
    column: str | None = None,
) -> None:
    """Insert a message with one part or without parts. Another column gets a text, if the login may write it."""
    values: dict[str, Any] = {
        "message_id": message_id,
        "context": context.to_json(),
        "part_ids": [] if part_id is None else [part_id],
        "body_part_id": part_id,
        "body_part_name": None if part_id is None else "body",
        **({} if column is None else {column: "me"}),
    }
    names = sql.SQL(", ").join(map(sql.Identifier, values))
    places = sql.SQL(", ").join(sql.Placeholder() * len(values))
    statement = sql.SQL("INSERT INTO spool ({}) VALUES ({})").format(names, places)
    connection.execute(statement, list(values.values()))


def queue_message(connection: Connection, message_id: uuid.UUID | str, **columns: Any) -> None:
    """Queue a message for a service of the host Default."""
    values = {"message_id": message_id, "instance_id": uuid.uuid4(), "priority": 5, **columns}
    names = sql.SQL(", ").join(map(sql.Identifier, values))
    places = sql.SQL(", ").join(sql.Placeholder() * len(values))
    statement = sql.SQL("INSERT INTO default_q ({}) VALUES ({})").format(names, places)
    connection.execute(statement, list(values.values()))


def count_reference(connection: Connection, message_id: uuid.UUID) -> None:
    connection.execute("INSERT INTO message_ref_count_log_1 VALUES (%s, 1)", (message_id,))


def read_tokens(connection: Connection, column: str) -> None:
    """Read a column of all subscriptions."""
    connection.execute(sql.SQL("SELECT {} FROM subscriptions").format(sql.Identifier(column)))
