"""The receive adapter of the inbox: other programs put interchanges there, by HTTP, and the stream receives them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from postroom.adapters.contract import Committed, Incoming
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.location_lock import LocationLock
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.numbered_receive_adapter import NumberedReceiveAdapter, Scan
from postroom.receiving.task import NumberedIncoming

#: Maximum number of rows of the inbox in one transaction.
_BATCH_SIZE = 5_000


class InboxReceiveAdapter(NumberedReceiveAdapter):
    """Receives the rows that are committed in the inbox. A row is deleted after it was received."""

    def __init__(
        self,
        connection: Connection,
        location: ReceiveLocation,
        *,
        connect: Connect,
        share: Sequence[uuid.UUID] | None = None,
        batch_size: int = _BATCH_SIZE,
    ) -> None:
        """``connect`` opens connections that large bodies are read over."""
        super().__init__(connection, location, share=share)
        self._connect = connect
        self._batch_size = batch_size
        self._lock = LocationLock(connection, location.location_id)
        self._is_first_scan = True

    def scan(self) -> Scan:
        """Number new rows. The first scan releases the quarantined rows, too."""
        if not self._lock.acquire():
            return Scan(active=False)
        if self._is_first_scan:
            inbox.release_quarantined(self._connection, self._location.location_id)
            self._is_first_scan = False
        numbered = inbox.assign_numbers(self._connection, self._location.location_id, self._batch_size)
        return Scan(active=True, claimed=numbered, more=numbered == self._batch_size)

    def read(self, interchange_ids: Sequence[uuid.UUID]) -> list[Incoming]:
        batch: list[Incoming] = []
        for stored in inbox.read_interchanges(self._connection, interchange_ids, self._connect):
            try:
                context = stored.context
            except Exception as error:  # another version has written a property that this one does not know
                self._quarantine(stored.interchange_id, error)
                continue
            batch.append(
                NumberedIncoming(
                    key=str(stored.interchange_id),
                    body=stored.body,
                    context=context,
                    name=f"interchange {stored.interchange_id}",
                    arrived_at=stored.stored_at,
                    interchange_id=stored.interchange_id,
                )
            )
        return batch

    def clean_up(self, committed: Sequence[Committed]) -> None:
        inbox.delete_interchanges(self._connection, _list_ids([one.incoming for one in committed]))

    def release(self, batch: Sequence[Incoming]) -> None:
        inbox.return_to_inbox(self._connection, _list_ids(batch))

    def quarantine(self, incoming: Incoming, error: Exception) -> None:
        [interchange_id] = _list_ids([incoming])
        self._quarantine(interchange_id, error)

    def _quarantine(self, interchange_id: uuid.UUID, error: Exception) -> None:
        problem = f"Interchange {interchange_id} could not be received: {type(error).__name__}: {error}"
        inbox.quarantine(self._connection, interchange_id, problem)

    def close(self) -> None:
        self._lock.release()


def _list_ids(batch: Sequence[Incoming]) -> list[uuid.UUID]:
    return [incoming.interchange_id for incoming in batch if isinstance(incoming, NumberedIncoming)]
