"""The attempts to process polled interchanges alone, after a host was killed while it received (ADR 0029)."""

from __future__ import annotations

import uuid

from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.statements import statement


def record_attempt(connection: Connection, location_id: uuid.UUID, interchange_id: uuid.UUID) -> int:
    """Record that a host is about to process an interchange alone. Return the number of attempts since the last restart
    of PostgreSQL."""
    return int(read_value(connection, statement("queries/record_poll_attempt"), interchange_id, location_id))


def undo_attempt(connection: Connection, interchange_id: uuid.UUID) -> None:
    """Undo one ``record_attempt``."""
    connection.execute(
        "UPDATE poll_attempts SET attempts = greatest(attempts - 1, 0) WHERE interchange_id = %s", (interchange_id,)
    )


def delete_attempts(connection: Connection, location_id: uuid.UUID, interchange_id: uuid.UUID | None = None) -> None:
    """Delete the attempts of an interchange that is finished, or of all interchanges of a location."""
    connection.execute(
        "DELETE FROM poll_attempts WHERE location_id = %s AND interchange_id = coalesce(%s, interchange_id)",
        (location_id, interchange_id),
    )
