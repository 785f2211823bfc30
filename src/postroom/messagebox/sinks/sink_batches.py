"""The batches of a host's sinks.

    queue = SinkQueue("Main")
    batch = queue.open_batch(connection, port_id, limit=10_000, sink=adapter)       # an unfinished one, or a new one
    rows = queue.read_rows(connection, batch.batch_id, batch.attempt, SeqRange(batch.seqs[0], batch.seqs[-1]))
    queue.complete(connection, batch)

The messages of a batch are fixed when it is opened, and are the same at every attempt. A process that opens a batch
again takes it over: ``read_rows``, ``read_messages``, ``complete`` and ``fail`` of the earlier attempt raise ClaimLost.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8BinaryLoader

from postroom.errors import ClaimLost
from postroom.messagebox.connection import Connection, read_value, transaction
from postroom.messagebox.coordination.heartbeat import keep_alive
from postroom.messagebox.queues import ClaimedMessage, HostQueues, ScheduledRetry, Suspension

#: Limits of a chunk, the messages that a task reads at a time. It has one chunk in memory. The bytes are those of
#: contexts and bodies.
CHUNK_MESSAGES = 5_000
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class SinkBatch:
    """A batch for this process to write."""

    batch_id: uuid.UUID
    number: int
    attempt: int
    sink: dict[str, Any]
    """The port's adapter when the batch was created. Empty if the port was deleted."""
    seqs: tuple[int, ...]
    """The numbers of its messages, lowest first."""
    tries: tuple[int, ...]
    """The number of earlier attempts of each message."""


#: The class of the advisory locks on sinks. The number of a lock is derived from the port's id.
SINK_LOCK = 7008


class WrittenBatch(NamedTuple):
    """A batch that is written and has to be completed."""

    batch_id: uuid.UUID
    number: int
    attempt: int


class SeqRange(NamedTuple):
    """A range of message numbers. Both ends belong to it."""

    first: int
    last: int


class SinkMessage(NamedTuple):
    """A message of a batch, and the time of its publish."""

    claimed: ClaimedMessage
    published_at: datetime | None


class SinkRows(NamedTuple):
    """What most sinks need of messages of a batch, by column.

    ``is_simple`` is not True if a message has more than a body in UTF-8, or if the body is in fragments. Then it has to
    be read as a SinkMessage."""

    seqs: Sequence[int]
    is_simple: Sequence[bool | None]
    message_ids: Sequence[str]
    contexts: Sequence[str]
    bodies: Sequence[bytes | None]
    published_at: Sequence[int]
    """Microseconds since the year 2000."""

    def select(self, chosen: Callable[[Sequence[Any]], Sequence[Any]]) -> SinkRows:
        """Return the rows that ``chosen`` returns of each column."""
        return SinkRows(*map(chosen, self))


class SinkQueue:
    """The procedures of the host ``name`` for its sinks."""

    def __init__(self, name: str) -> None:
        host = name.lower()
        self.queues = HostQueues(name)
        self._waiting = f"SELECT waiting_sinks_{host}(coalesce(%s, now()))"
        self._open = f"SELECT * FROM open_sink_batch_{host}(%s, %s, %s, %s)"
        self._messages = f"SELECT * FROM read_sink_messages_{host}(%s, %s, %s, %s, %s, %s)"
        self._rows = f"SELECT * FROM read_sink_rows_{host}(%s, %s, %s, %s, %s, %s, %s)"
        self._written = f"SELECT * FROM written_sink_batches_{host}(%s)"
        self._set_written = f"SELECT set_sink_batch_written_{host}(%s, %s)"
        self._complete = f"SELECT complete_sink_batch_{host}(%s, %s)"
        self._close = f"SELECT close_sink_batch_{host}(%s, %s)"
        self._lock = f"SELECT lock_sink_batch_{host}(%s, %s)"
        self._record = f"SELECT record_sink_attempt_{host}(%s, %s, %s)"
        self._suspect = f"SELECT suspect_sink_messages_{host}(%s, %s, %s)"
        self._clear = f"SELECT clear_sink_attempts_{host}(%s, %s)"
        self._count = f"SELECT count_attempted_sink_messages_{host}(%s)"

    def find_waiting_ports(self, connection: Connection, now: datetime | None = None) -> set[uuid.UUID]:
        """Return the ports that have queued messages or an unfinished batch."""
        return {port_id for (port_id,) in connection.execute(self._waiting, (now,))}

    def find_last_number(self, connection: Connection) -> int:
        """Return the highest number of a queued message. Later messages get higher numbers."""
        row = connection.execute("SELECT pg_sequence_last_value('messagebox.queue_sequence')").fetchone()
        return row[0] or 0 if row else 0

    def open_batch(
        self, connection: Connection, port_id: uuid.UUID, *, limit: int, sink: dict[str, Any] | None = None
    ) -> SinkBatch | None:
        """Return the next batch to write, or None if there is none. From now on its messages are fixed. The definition
        of a new one is ``sink``, or None if its port was removed."""
        row = connection.execute(self._open, (port_id, uuid.uuid4(), limit, Jsonb(sink or {})), binary=True).fetchone()
        if row is None:
            return None
        batch_id, number, attempt, sink, seqs, tries = row
        return SinkBatch(
            batch_id=batch_id, number=number, attempt=attempt, sink=sink, seqs=tuple(seqs), tries=tuple(tries)
        )

    def read_messages(
        self,
        connection: Connection,
        batch_id: uuid.UUID,
        attempt: int,
        seqs: SeqRange,
        *,
        limit: int = CHUNK_MESSAGES,
    ) -> list[SinkMessage]:
        """Return the first messages of a batch in a range of numbers: up to ``limit``, and up to CHUNK_BYTES unless it
        is one. Raise ClaimLost if the batch was taken over."""
        arguments = (batch_id, attempt, *seqs, limit, CHUNK_BYTES)
        rows = connection.execute(self._messages, arguments, binary=True).fetchall()
        return [SinkMessage(ClaimedMessage(batch_id, *row[:-1]), row[-1]) for row in rows]

    def read_rows(
        self,
        connection: Connection,
        batch_id: uuid.UUID,
        attempt: int,
        seqs: SeqRange,
        *,
        limit: int = CHUNK_MESSAGES,
        with_body: bool = True,
    ) -> SinkRows:
        """Return the same messages as ``read_messages`` in the form of rows, which takes a third of the time."""
        with connection.cursor(binary=True) as cursor:
            # The time as it is sent, which Arrow stores without an object for each message.
            cursor.adapters.register_loader("timestamptz", Int8BinaryLoader)
            arguments = (batch_id, attempt, *seqs, limit, CHUNK_BYTES, with_body)
            row = cursor.execute(self._rows, arguments).fetchone()
        if row is None or row[0] is None:
            return SinkRows((), (), (), (), (), ())
        seqs_found, is_simple, message_ids, contexts, bodies, published_at = row
        return SinkRows(seqs_found, is_simple, message_ids.split(","), contexts.split("\n"), bodies, published_at)

    def lock(self, connection: Connection, batch_id: uuid.UUID, attempt: int) -> None:
        """Keep others from taking over the batch until the caller's transaction ends. Raise ClaimLost if one has."""
        connection.execute(self._lock, (batch_id, attempt))

    def record_attempt(self, connection: Connection, batch_id: uuid.UUID, attempt: int, seq: int) -> int:
        """Record that a task is about to process a message alone. Return the number of its attempts. Raise ClaimLost if
        the batch was taken over."""
        row = connection.execute(self._record, (batch_id, attempt, seq)).fetchone()
        return int(row[0]) if row else 0

    def suspect(self, connection: Connection, batch_id: uuid.UUID, attempt: int, seqs: Sequence[int]) -> set[int]:
        """Record that a task is about to process messages together. Return those that are suspected already to have
        killed a worker, and have to be processed alone. Raise ClaimLost if the batch was taken over."""
        return {seq for (seq,) in connection.execute(self._suspect, (batch_id, attempt, list(seqs)))}

    def clear_attempts(self, connection: Connection, batch_id: uuid.UUID, seqs: Sequence[int]) -> None:
        """Delete the attempts of messages: their worker is alive."""
        connection.execute(self._clear, (batch_id, list(seqs)))

    def count_attempted(self, connection: Connection, batch: SinkBatch) -> int:
        """Return how many messages have attempts that did not finish. Their workers may have died."""
        row = connection.execute(self._count, (batch.batch_id,)).fetchone()
        return int(row[0]) if row else 0

    def set_written(self, connection: Connection, batch: SinkBatch) -> int:
        """Record that a batch is written, so that the next one can be opened before this one is completed. Return the
        number of its messages."""
        return transaction(connection, lambda connection: self._end(connection, self._set_written, batch))

    def find_written(self, connection: Connection, port_id: uuid.UUID) -> list[WrittenBatch]:
        """Return the batches of a sink that are written and not completed."""
        return [WrittenBatch(*row) for row in connection.execute(self._written, (port_id,))]

    def complete(self, connection: Connection, batch: SinkBatch | WrittenBatch) -> int:
        """Complete the messages of a written batch, and delete the batch. Return the number of messages."""
        return transaction(connection, lambda connection: self._end(connection, self._complete, batch))

    def fail(
        self,
        connection: Connection,
        batch: SinkBatch,
        retries: dict[int, ScheduledRetry],
        suspensions: dict[int, Suspension],
    ) -> tuple[int, int]:
        """End a batch that was not written. Return the numbers of retried and of suspended messages."""

        def work(connection: Connection) -> tuple[int, int]:
            self._end(connection, self._close, batch)
            retried = self.queues.retry(connection, batch.batch_id, retries) if retries else 0
            suspended = self.queues.suspend(connection, batch.batch_id, suspensions) if suspensions else 0
            return retried, suspended

        return transaction(connection, work)

    def _end(self, connection: Connection, call: str, batch: SinkBatch | WrittenBatch) -> int:
        """Call a procedure that returns null or false if the batch was taken over."""
        result = read_value(connection, call, batch.batch_id, batch.attempt)
        if result is None or result is False:
            raise ClaimLost(f"Another process has taken over batch {batch.number}.")
        return int(result)


def to_lock_number(port_id: uuid.UUID) -> int:
    """Return the number of a sink's advisory lock: a signed 32-bit integer."""
    return int.from_bytes(port_id.bytes[:4], "big", signed=True)


def lock_sink(connection: Connection, port_id: uuid.UUID) -> bool:
    """Lock a sink for this session. Return False if another process drains it."""
    keep_alive(connection)
    return bool(read_value(connection, "SELECT pg_try_advisory_lock(%s, %s)", SINK_LOCK, to_lock_number(port_id)))
