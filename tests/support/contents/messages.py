"""Stored messages, their parts and references."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from postroom.message import Context
from tests.support.contents.statements import Statements


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    message_id: uuid.UUID
    part_ids: list[uuid.UUID]
    body_part_id: uuid.UUID | None
    body: bytes | None
    """None also if the body is stored in fragments."""
    stored_context: dict[str, Any]
    published_at: datetime
    published_by: str
    originator_sid: str | None
    originator_pid: str | None
    transaction: str

    @property
    def context(self) -> Context:
        return Context.from_json(self.stored_context)


@dataclass(frozen=True, kw_only=True)
class StoredPart:
    part_id: uuid.UUID
    name: str
    content_type: str
    size: int
    body: bytes | None
    """None: the content is stored in fragments."""


#: The tables that record which transaction counted a reference.
_COUNTING = (
    *(f"{kind}_ref_count_log_{name}" for kind in ("message", "part") for name in ("1", "2", "totals")),
    "work_queue",
    "spool",
    "parts",
)


class StoredMessages(Statements):
    """Stored messages, their parts and references."""

    def messages(self) -> list[StoredMessage]:
        """Return the stored messages in the order of their publication."""
        return self._read(
            StoredMessage,
            "SELECT s.message_id, part_ids, body_part_id, body, context AS stored_context, published_at, published_by,"
            " originator_sid, originator_pid, s.xmin::text AS transaction"
            " FROM spool s LEFT JOIN parts ON part_id = body_part_id ORDER BY published_at, message_id",
        )

    def message(self, message_id: uuid.UUID) -> StoredMessage:
        return next(message for message in self.messages() if message.message_id == message_id)

    def parts(self) -> list[StoredPart]:
        return self._read(StoredPart, "SELECT part_id, name, content_type, size, body FROM parts ORDER BY part_id")

    def bodies(self) -> list[bytes]:
        """Return the content of all parts that are not stored in fragments."""
        return [part.body for part in self.parts() if part.body is not None]

    def fragments(self) -> list[bytes]:
        rows = self.connection.execute("SELECT body FROM fragments ORDER BY part_id, number")
        return [body for (body,) in rows]

    def count_references(self, what: Literal["message", "part"]) -> int:
        """Return the sum of all reference counts in the logs and totals."""
        return int(self.one(f"SELECT sum(total) FROM {what}_ref_counts") or 0)

    def read_content(self, part_id: uuid.UUID) -> bytes:
        """Return the content of a part, also of one that is stored in fragments."""
        content: bytes = self.one(
            "SELECT coalesce(body, (SELECT string_agg(f.body, '' ORDER BY f.number) FROM fragments f"
            " WHERE f.part_id = p.part_id)) FROM parts p WHERE part_id = %s",
            part_id,
        )
        return content

    def delete_message(self, message_id: uuid.UUID) -> None:
        """Delete a message whose queue rows stay."""
        self.connection.execute("DELETE FROM spool WHERE message_id = %s", (message_id,))

    def delete_fragment(self, number: int) -> None:
        """Delete one fragment of each part that is stored in fragments."""
        self.connection.execute("DELETE FROM fragments WHERE number = %s", (number,))

    def read_active_log(self) -> int:
        """Return the number of the log that counts references of messages now."""
        return int(self.one("SELECT active FROM active_ref_count_log WHERE kind = 'message'"))

    def add_messages(self, count: int, *, size: int) -> None:
        """Add messages without parts and references, which have one property of this size."""
        self.connection.execute(
            "INSERT INTO spool (message_id, part_ids, context)"
            " SELECT gen_random_uuid(), '{}', jsonb_build_object('promoted', jsonb_build_object('t', repeat('y', %s)))"
            "   FROM generate_series(1, %s)",
            (size, count),
        )

    def remove_properties(self, *keys: str) -> None:
        """Remove properties from the contexts of all messages, which were written and not promoted."""
        self.connection.execute(
            "UPDATE spool SET context = jsonb_set(context, '{written}', (context -> 'written') - %s::text[])",
            (list(keys),),
        )

    def add_references(self, count: int) -> None:
        """Count references of all messages that do not exist."""
        self.connection.execute(
            "INSERT INTO message_ref_count_log_totals SELECT message_id, '3', %s FROM spool", (count,)
        )

    def move_transactions_to_future(self) -> None:
        """Let transactions have counted and created everything that this server has not begun, as after a restore."""
        for table in _COUNTING:
            self.connection.execute(
                f"UPDATE {table} SET counted_in = (counted_in::text::bigint + (1 << 40))::text::xid8"
            )
        self.connection.execute("UPDATE subscriptions SET created_in = '999999999999'")

    def find_future_transactions(self) -> list[str]:
        """Return the tables in which transactions that this server has not begun have counted references."""
        where = "counted_in >= pg_current_xact_id()"
        counted = {table: f"{table} WHERE {where}" for table in _COUNTING}
        for table in ("spool", "parts"):
            counted[table] += " AND only_reference"
        counted["subscriptions"] = "subscriptions WHERE created_in IS NOT NULL"
        return [table for table, rows in counted.items() if self.count_rows(rows)]

    def block_publishing(self, *, after: int) -> None:
        """Let publishers wait when there are more messages, until `unblock_publishing`."""
        self.connection.execute(
            "CREATE FUNCTION messagebox.block() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
            f" IF (SELECT count(*) FROM messagebox.spool) > {after}"
            " THEN PERFORM pg_advisory_xact_lock(2000); END IF; RETURN NULL; END $$"
        )
        self.add_trigger("block", "messages", "AFTER INSERT", "messagebox.block()")
        self.connection.execute("SELECT pg_advisory_lock(2000)")

    def unblock_publishing(self) -> None:
        self.connection.execute("SELECT pg_advisory_unlock(2000)")
        self.connection.execute("DROP FUNCTION messagebox.block CASCADE")
