"""The batches of a host's sinks, as pipeline processes use them.

    queue = SinkQueue("Main")
    batch = queue.open(connection, port_id, limit=10_000)       # an unfinished one, or a new one
    for message in queue.messages(connection, batch.batch_id, batch.attempt, batch.seqs[:500]):
        ...
    queue.complete(connection, batch)

What belongs to a batch is settled when it is opened, and is the same at every attempt. Whoever opens a batch again
takes it away from whoever had it: the other's ``messages`` and endings find that their attempt is over (ClaimLost).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from postroom.errors import ClaimLost
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Retry, Suspension


@dataclass(frozen=True, kw_only=True)
class SinkBatch:
    """A batch that this process is to write."""

    batch_id: uuid.UUID
    number: int
    attempt: int
    sink: dict[str, Any]
    """The port's adapter when the batch was made; empty if the port was gone by then."""
    seqs: tuple[int, ...]
    sizes: tuple[int, ...]
    tries: tuple[int, ...]
    """How often each message was tried before."""


class SinkMessage(NamedTuple):
    """A message of a batch, and when it was published."""

    claimed: ClaimedMessage
    published_at: datetime | None


class SinkQueue:
    """The procedures of the host called ``name`` for its sinks."""

    def __init__(self, name: str) -> None:
        host = name.lower()
        self.queues = HostQueues(name)
        self._waiting = f"SELECT waiting_sinks_{host}(coalesce(%s, now()))"
        self._open = f"SELECT * FROM open_sink_batch_{host}(%s, %s, %s)"
        self._messages = f"SELECT * FROM read_sink_messages_{host}(%s, %s, %s::bigint[])"
        self._close = f"SELECT close_sink_batch_{host}(%s, %s)"
        self._lock = f"SELECT lock_sink_batch_{host}(%s, %s)"
        self._record = f"SELECT record_sink_attempt_{host}(%s, %s, %s)"
        self._clear = f"SELECT clear_sink_attempts_{host}(%s, %s)"
        self._count = f"SELECT count_attempted_sink_messages_{host}(%s)"

    def waiting(self, connection: Connection, now: datetime | None = None) -> set[uuid.UUID]:
        """The ports that have messages waiting, or a batch that has not ended."""
        return {port_id for (port_id,) in connection.execute(self._waiting, (now,))}

    def newest(self, connection: Connection) -> int:
        """A number that no message is above which waits now; one that is published later gets a higher one."""
        row = connection.execute("SELECT pg_sequence_last_value('messagebox.queue_sequence')").fetchone()
        return row[0] or 0 if row else 0

    def open(self, connection: Connection, port_id: uuid.UUID, *, limit: int) -> SinkBatch | None:
        """The batch to write next, settled from now on; None if there is nothing to write."""
        row = connection.execute(self._open, (port_id, uuid.uuid4(), limit)).fetchone()
        if row is None:
            return None
        batch_id, number, attempt, sink, *of_messages = row
        seqs, sizes, tries = map(tuple, of_messages)
        return SinkBatch(
            batch_id=batch_id, number=number, attempt=attempt, sink=sink, seqs=seqs, sizes=sizes, tries=tries
        )

    def messages(
        self, connection: Connection, batch_id: uuid.UUID, attempt: int, seqs: Sequence[int]
    ) -> list[SinkMessage]:
        """Those of the batch with these numbers; ClaimLost if the attempt is over."""
        rows = connection.execute(self._messages, (batch_id, attempt, list(seqs)), binary=True).fetchall()
        return [SinkMessage(ClaimedMessage(batch_id, *row[:-1]), row[-1]) for row in rows]

    def lock(self, connection: Connection, batch_id: uuid.UUID, attempt: int) -> None:
        """Keep others from taking over the batch until the caller's transaction ends. Raise ClaimLost if one has."""
        connection.execute(self._lock, (batch_id, attempt))

    def record_attempt(self, connection: Connection, batch_id: uuid.UUID, attempt: int, seq: int) -> int:
        """Record that a task is about to process a message alone. Return the number of its attempts. Raise ClaimLost if
        the batch was taken over."""
        row = connection.execute(self._record, (batch_id, attempt, seq)).fetchone()
        return int(row[0]) if row else 0

    def forget_attempts(self, connection: Connection, batch_id: uuid.UUID, seq: int) -> None:
        """Delete the attempts of a message: its worker is alive."""
        connection.execute(self._clear, (batch_id, seq))

    def count_attempted(self, connection: Connection, batch: SinkBatch) -> int:
        """Return how many messages have attempts that did not finish. Their workers may have died."""
        row = connection.execute(self._count, (batch.batch_id,)).fetchone()
        return int(row[0]) if row else 0

    def complete(self, connection: Connection, batch: SinkBatch) -> int:
        """What is left in the batch is written: it goes, with the batch. Returns how many messages that were."""

        def work(connection: Connection) -> int:
            self._end(connection, batch)
            return self.queues.complete(connection, batch.batch_id, batch.seqs)

        return transaction(connection, work)

    def fail(
        self, connection: Connection, batch: SinkBatch, retries: dict[int, Retry], suspensions: dict[int, Suspension]
    ) -> tuple[int, int]:
        """The batch was not written and ends; its messages are tried again, or are suspended. Returns how many."""

        def work(connection: Connection) -> tuple[int, int]:
            self._end(connection, batch)
            retried = self.queues.retry(connection, batch.batch_id, retries) if retries else 0
            suspended = self.queues.suspend(connection, batch.batch_id, suspensions) if suspensions else 0
            return retried, suspended

        return transaction(connection, work)

    def _end(self, connection: Connection, batch: SinkBatch) -> None:
        row = connection.execute(self._close, (batch.batch_id, batch.attempt)).fetchone()
        if row is None or not row[0]:
            raise ClaimLost(f"Batch {batch.number} was given to another process.")
