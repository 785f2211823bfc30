"""The connections of one dequeue thread, opened when they are first needed: most messages need none."""

from __future__ import annotations

import threading
import uuid

from postroom.errors import ReadInterrupted, Unavailable
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.queues import ClaimedMessage, HostQueues, StoredPart


class ThreadConnections:
    """One connection to write with, and another one to read claimed messages with.

    Two, because a body may be read while a COPY of the same thread is under way. Reading may happen in other threads,
    which an adapter may have.
    """

    def __init__(self, connect: Connect, queues: HostQueues) -> None:
        self._writing = LazyConnection(connect)
        self._reading = LazyConnection(connect)
        self._lock = threading.Lock()
        self._queues = queues

    def writing(self) -> Connection:
        return self._writing.get()

    def parts(self, claimed: ClaimedMessage) -> list[StoredPart]:
        try:
            return self._queues.parts(self._to_read(), claimed.claim_id, claimed.message_id)
        except Unavailable as error:
            raise ReadInterrupted("The parts of the message could not be read.", why=str(error)) from error

    def fragments(
        self, claimed: ClaimedMessage, part_id: uuid.UUID, *, start: int, count: int
    ) -> list[tuple[int, bytes]]:
        try:
            return self._queues.fragments(
                self._to_read(), claimed.claim_id, claimed.message_id, part_id, start=start, count=count
            )
        except Unavailable as error:
            raise ReadInterrupted("The body of the message could not be read.", why=str(error)) from error

    def _to_read(self) -> Connection:
        with self._lock:
            return self._reading.get()

    def close(self) -> None:
        self._writing.close()
        self._reading.close()
