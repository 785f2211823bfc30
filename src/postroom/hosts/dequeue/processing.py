"""What a host does with the messages of a service class: the service, its connections, and its outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

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


class Limits(NamedTuple):
    """How many messages of a service a thread takes together, and how many are sent at a time. None: as many as there
    are threads."""

    batch: int = 1
    sends: int | None = None


UNLIMITED = Limits()


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


@dataclass(frozen=True, kw_only=True)
class WaitingSend:
    """A message that was sent, and whose receiver has not answered. It occupies no thread.

    ``start`` begins to wait. It takes a function that is called once, in another thread, when the receiver has answered
    or will not answer. ``finish`` returns the outcome then, in a dequeue thread.
    """

    start: Callable[[Callable[[], None]], None]
    finish: Callable[[ThreadConnections], Sequence[Outcome]]


class MessageProcessor(Protocol):
    """Processes the messages of one service class. A Subservice calls it with each message that it has dequeued.

    The service of messaging is the Endpoint Manager."""

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        """Prepare for a batch of at least one message. The poller calls this on its connection after each claim."""
        ...

    def get_limits(self, claimed: ClaimedMessage) -> Limits:
        """Return how many messages with the same service and task may be processed together with this one, itself
        included, which is 1 for messages that share their instance, and how many of its service at a time."""
        ...

    def handle(
        self, batch: Sequence[ClaimedMessage], connections: ThreadConnections
    ) -> Sequence[Outcome] | WaitingSend:
        """Process a message, or several with the same service and task, in a dequeue thread. Return the outcome of
        each, or a send that waits for the receiver. Never raise because of a message."""
        ...

    def close(self) -> None: ...
