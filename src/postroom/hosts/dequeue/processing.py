"""What a host does with the messages of a service class: the service, its connections, and its outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from postroom.errors import ReadInterrupted, Unavailable
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.queues import (
    ClaimedMessage,
    HostQueues,
    Postponement,
    ScheduledRetry,
    Suspension,
)

T = TypeVar("T")


class Disposition(Enum):
    """The outcomes of a message that need no further data."""

    #: The message was delivered. Its queue row is deleted and the message is released.
    COMPLETE = "completed"
    #: The service has completed the message in a transaction of its own.
    FINISHED = "finished"
    #: The service has suspended the message in a transaction of its own.
    SUSPENDED = "suspended"
    #: Nothing was attempted. The message returns to its queue.
    RELEASE = "released"
    #: Another host instance took over the claim. The result of this attempt is void.
    DISCARD = "discarded"


Outcome = Disposition | ScheduledRetry | Postponement | Suspension


class ThreadConnections:
    """The two connections of a dequeue thread: one to write, one to read claimed messages.

    A body may be read while the same thread runs a COPY, so reading needs its own connection. An adapter may read from
    other threads. Both connections are opened at their first use, because most messages need neither.
    """

    def __init__(self, connect: Connect, queues: HostQueues) -> None:
        self._writing = LazyConnection(connect)
        self._reading = LazyConnection(connect)
        self._lock = threading.Lock()
        self._queues = queues

    def get_writing(self) -> Connection:
        return self._writing.get()

    def read_claimed(self, query: Callable[[HostQueues, Connection], T]) -> T:
        """Read a claimed message. Raise ReadInterrupted if the MessageBox does not answer."""
        try:
            return query(self._queues, self._get_reading())
        except Unavailable as error:
            raise ReadInterrupted("The message could not be read.", why=str(error)) from error

    def _get_reading(self) -> Connection:
        with self._lock:
            return self._reading.get()

    def close(self) -> None:
        self._writing.close()
        self._reading.close()


class MessageProcessor(Protocol):
    """Processes the messages of one service class. A Subservice calls it with each message that it has dequeued.

    The service of messaging is the Endpoint Manager."""

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        """Prepare for a batch of at least one message. The poller calls this on its connection after each claim."""
        ...

    def get_batch_limit(self, claimed: ClaimedMessage) -> int:
        """Return how many messages with the same service and task may be processed together with this one, itself
        included. It is 1 for messages that share their instance."""
        ...

    def handle(self, batch: Sequence[ClaimedMessage], connections: ThreadConnections) -> Sequence[Outcome]:
        """Process a message, or several with the same service and task, in a dequeue thread. Return the outcome of
        each. Never raise because of a message."""
        ...

    def close(self) -> None: ...
