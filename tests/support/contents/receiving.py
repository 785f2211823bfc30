"""What receive locations have taken in: file claims, the inbox, receipts."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg.types.json import Jsonb

from tests.support.contents.statements import Statements


@dataclass(frozen=True, kw_only=True)
class FileClaim:
    interchange_id: uuid.UUID
    location_id: uuid.UUID
    name: str
    state: int
    problem: str | None
    number: int | None


@dataclass(frozen=True, kw_only=True)
class StoredInterchange:
    """An interchange in the inbox."""

    interchange_id: uuid.UUID
    size: int
    body: bytes | None
    transaction: str


@dataclass(frozen=True, kw_only=True)
class Receipt:
    unit: uuid.UUID
    chunk: int
    outcome: dict[str, Any]


class Receiving(Statements):
    """What receive locations have taken in: file claims, the inbox, receipts."""

    def file_claims(self) -> list[FileClaim]:
        """Return the claims of files by their name."""
        return self._read(
            FileClaim,
            "SELECT interchange_id, location_id, name, state, problem, number FROM file_claims ORDER BY name",
        )

    def add_file_claim(
        self,
        location_id: uuid.UUID,
        *,
        name: str = "a.json",
        state: int = 2,
        problem: str | None = None,
        number: int | None = None,
        size: int | None = None,
        interchange_id: uuid.UUID | None = None,
    ) -> None:
        self.connection.execute(
            "INSERT INTO file_claims (interchange_id, location_id, name, path, state, problem, number, size)"
            " VALUES (%s, %s, %s, '/' || %s, %s, %s, %s, %s)",
            (interchange_id or uuid.uuid4(), location_id, name, name, state, problem, number, size),
        )

    def change_file_claims(self, **values: Any) -> None:
        self._set("file_claims", None, values)

    def delete_file_claim(self, interchange_id: uuid.UUID) -> None:
        self.connection.execute("DELETE FROM file_claims WHERE interchange_id = %s", (interchange_id,))

    def age_attempts(self, age: timedelta) -> None:
        """Move the first attempts at all interchanges into the past."""
        self.connection.execute("UPDATE receive_attempts SET attempts_since = attempts_since - %s", (age,))

    def checkpoint_ids(self) -> list[uuid.UUID]:
        """Return the ids of the checkpoints of all streams."""
        return [found for (found,) in self.connection.execute("SELECT checkpoint_id FROM streams")]

    def sink_attempts(self) -> list[int]:
        """Return the attempts at the messages of a sink that were tried alone, in their order."""
        return [attempts for (attempts,) in self.connection.execute("SELECT attempts FROM sink_attempts ORDER BY seq")]

    def inbox(self) -> list[StoredInterchange]:
        return self._read(StoredInterchange, "SELECT interchange_id, size, body, xmin::text AS transaction FROM inbox")

    def hide_inbox(self) -> None:
        """Let all statements about the inbox fail."""
        self.connection.execute("ALTER TABLE inbox RENAME TO hidden_inbox")

    def show_inbox(self) -> None:
        self.connection.execute("ALTER TABLE hidden_inbox RENAME TO inbox")

    def inbox_fragments(self) -> list[bytes]:
        rows = self.connection.execute("SELECT body FROM inbox_fragments ORDER BY number")
        return [body for (body,) in rows]

    def add_streams(self) -> None:
        """Let a stream of each receive location have been started."""
        self.connection.execute(
            "INSERT INTO streams (location_id, checkpoint_id) SELECT id, gen_random_uuid() FROM receive_locations"
        )

    def delete_locations_of_intake(self) -> None:
        """Delete all receive locations, also those whose files and interchanges are not published."""
        for table in ("file_claims", "inbox"):
            self.connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_location")
        self.connection.execute("DELETE FROM receive_locations")
        self.connection.execute("DELETE FROM services WHERE kind = 'location'")

    def lock_locations(self, name: str | None = None) -> None:
        """Lock one receive location or all until the end of the transaction."""
        self.connection.execute("SELECT FROM services WHERE name = coalesce(%s, name) FOR UPDATE", (name,))

    def receive_attempts(self) -> list[int]:
        return [attempts for (attempts,) in self.connection.execute("SELECT attempts FROM receive_attempts")]

    def add_receive_attempts(self, location_id: uuid.UUID, count: int) -> None:
        self.connection.execute(
            "INSERT INTO receive_attempts (interchange_id, location_id, attempts, attempts_since)"
            " SELECT gen_random_uuid(), %s, 1, now() FROM generate_series(1, %s)",
            (location_id, count),
        )

    def receipts(self) -> list[Receipt]:
        return self._read(Receipt, "SELECT unit, chunk, outcome FROM receipts ORDER BY unit, chunk")

    def add_receipt(self, unit: uuid.UUID, outcome: dict[str, Any] | None = None) -> None:
        self.connection.execute("INSERT INTO receipts (unit, outcome) VALUES (%s, %s)", (unit, Jsonb(outcome or {})))
