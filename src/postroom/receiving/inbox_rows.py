"""The rows of the inbox of a receive location: the intake numbers them, and receive tasks publish them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from postroom.agent.streaming.interchange import Interchange
from postroom.messagebox import inbox
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.inbox import InboxRow, StoredInterchange
from postroom.messagebox.streams.location_lock import LocationLock
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import Scan
from postroom.receiving.task import ReceiveSource

#: Maximum number of rows of the inbox in one transaction.
_BATCH_SIZE = 5_000


class InboxNumbering:
    """The intake of the inbox. It numbers the committed rows while it holds the lock of the location."""

    def __init__(self, connection: Connection, location: ReceiveLocation, *, batch_size: int = _BATCH_SIZE) -> None:
        self._connection = connection
        self._batch_size = batch_size
        self._location_id = location.location_id
        self._lock = LocationLock(connection, location.location_id)
        self._is_first_scan = True

    def scan(self) -> Scan:
        """Number new rows. The first scan releases the quarantined rows, too."""
        if not self._lock.acquire():
            return Scan(active=False)
        if self._is_first_scan:
            inbox.release_quarantined(self._connection, self._location_id)
            self._is_first_scan = False
        numbered = inbox.assign_numbers(self._connection, self._location_id, self._batch_size)
        return Scan(active=True, claimed=numbered, more=numbered == self._batch_size)

    def next_scan_in(self, longest: timedelta) -> timedelta:
        return longest

    def release(self) -> None:
        self._lock.release()


@dataclass(frozen=True, kw_only=True)
class Inbox(ReceiveSource[InboxRow, StoredInterchange]):
    """The rows that adapters have stored in the inbox. A row is deleted after it was received."""

    location: ReceiveLocation
    login: Login

    def read(self, connection: Connection, rows: Sequence[InboxRow]) -> list[StoredInterchange]:
        return inbox.read_interchanges(
            connection, [row.interchange_id for row in rows], partial(self.login.connect, "inbox")
        )

    def interchange(self, item: StoredInterchange) -> Interchange:
        return Interchange(interchange_id=item.interchange_id, body=item.body, context=item.context, seed=item.seed)

    def get_arrival(self, item: StoredInterchange) -> float:
        return item.stored_at.timestamp()

    def describe(self, item: StoredInterchange) -> str:
        return f"interchange {item.interchange_id}"

    def finish(self, connection: Connection, items: Sequence[StoredInterchange]) -> None:
        inbox.delete_interchanges(connection, [item.interchange_id for item in items])

    def give_back(self, connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> None:
        inbox.return_to_inbox(connection, interchange_ids)

    def quarantine(self, connection: Connection, item: StoredInterchange, error: Exception) -> None:
        problem = f"Interchange {item.interchange_id} could not be received: {type(error).__name__}: {error}"
        inbox.quarantine(connection, item.interchange_id, problem)

    def record_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> int:
        return inbox.record_attempt(connection, interchange_id)

    def undo_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> None:
        inbox.undo_attempt(connection, interchange_id)
