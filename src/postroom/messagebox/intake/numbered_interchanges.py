"""The intake of a receive location: its file claims, or its rows in the inbox, by their numbers, and the attempts to
receive an interchange alone (ADR 0029).

Only the one process that serves a location numbers its interchanges, in consecutive transactions. So a transaction that
can read a number can also read all lower numbers.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from postroom.messagebox.connection import Connection, read_value
from postroom.messagebox.statements import statement


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeRow:
    """An interchange that waits, and its size in bytes."""

    interchange_id: uuid.UUID
    size: int


def find_last_number(connection: Connection, location_id: uuid.UUID, after: int, limit: int | None) -> int:
    """Return the last number of the next ``limit`` interchanges after a number, or ``after`` if there are none."""
    row = connection.execute(
        statement("queries/last_intake_number"), {"location_id": location_id, "after": after, "limit": limit}
    ).fetchone()
    return after if row is None or row[0] is None else int(row[0])


def read_numbered(connection: Connection, location_id: uuid.UUID, after: int, last: int) -> list[IntakeRow]:
    """Return the interchanges with numbers above ``after`` and up to ``last``, in order."""
    rows = connection.execute(
        statement("queries/read_intake"), {"location_id": location_id, "after": after, "last": last}
    )
    return [IntakeRow(interchange_id=interchange_id, size=size) for interchange_id, size in rows]


def read_quarantined(connection: Connection, location_id: uuid.UUID) -> list[tuple[str, str]]:
    """Return the files and the rows of the inbox that are not received before the next start of their location: name
    and problem, by name."""
    return connection.execute(statement("queries/read_quarantined"), {"id": location_id}).fetchall()


def record_attempt(connection: Connection, location_id: uuid.UUID, interchange_id: uuid.UUID) -> int:
    """Record that a process is about to receive an interchange alone. Return the number of attempts since the last
    restart of PostgreSQL."""
    return int(read_value(connection, statement("queries/record_receive_attempt"), interchange_id, location_id))


def undo_attempt(connection: Connection, interchange_id: uuid.UUID) -> None:
    """Undo one ``record_attempt``."""
    connection.execute(statement("queries/undo_receive_attempt"), {"id": interchange_id})


def delete_attempts(connection: Connection, interchange_id: uuid.UUID) -> None:
    """Delete the attempts to receive an interchange. One of them has finished."""
    connection.execute("DELETE FROM receive_attempts WHERE interchange_id = %s", (interchange_id,))


def delete_location_attempts(connection: Connection, location_id: uuid.UUID) -> None:
    """Delete the attempts of a location. All that its source has was received, or has no attempt."""
    connection.execute("DELETE FROM receive_attempts WHERE location_id = %s", (location_id,))
