"""The task of a sink batch: read messages from the queue and convert them to rows. Runs in a Spark worker.

The task may run again after any interruption, and twice at the same time. Reading changes nothing. A message that
cannot be converted to a row, or that kills the worker, is removed from the batch once: it is suspended, or routed as
an error message (ADR 0029).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from postroom.agent.error_messages import Failure, get_message_type
from postroom.agent.failed_messages import FailedMessages
from postroom.clock import system_clock
from postroom.errors import ClaimLost, DeliveryRefused, MessageFailure
from postroom.maps.port_maps import NO_MAPS, PortMaps
from postroom.message import Message
from postroom.messagebox.connection import Connection, Login, transaction
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, StoredPart, Suspension
from postroom.messagebox.storage.stored_messages import build_message
from postroom.messagebox.streams.sink_batches import SinkMessage, SinkQueue
from postroom.pipelines.definition import FORMAT_SECONDS
from postroom.spark.sinks.row_format import RowFormat, to_row_failure
from postroom.spark.worker import GRACE, attempt_alone, guard_worker, worker_death_failure

_log = logging.getLogger(__name__)

#: Limits of a chunk of a batch. A task has one chunk in memory.
CHUNK_MESSAGES = 500
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class SinkPort:
    """The properties of the send port that a task needs."""

    name: str
    kind: str
    uri: str
    route_failures: bool
    maps: PortMaps = NO_MAPS


@dataclass(frozen=True, kw_only=True)
class SinkTask:
    """The function that Spark runs on the chunks of a batch. It yields the rows."""

    login: Login
    host: str
    port: SinkPort
    batch_id: uuid.UUID
    attempt: int
    rows: RowFormat

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, rows, _ in self.read_chunks(batches):
            yield rows

    def read_chunks(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[Connection, pa.RecordBatch, list[ClaimedMessage]]]:
        """Yield the task's connection, the rows and the messages of each chunk. The task connects at its first
        chunk."""
        with guard_worker((self.port.maps.longest_seconds or FORMAT_SECONDS) + GRACE) as is_retry:
            # A batch that was opened before may have killed the worker or the process that had it.
            isolated = is_retry or self.attempt > 1
            connection: Connection | None = None
            try:
                for batch in batches:
                    for seqs in batch.column("seqs").to_pylist():
                        connection = connection or self.login.connect("sink")
                        yield connection, *self.read(connection, seqs, isolated=isolated)
            finally:
                if connection is not None:
                    connection.close()

    def read(
        self, connection: Connection, seqs: Sequence[int], *, isolated: bool = False
    ) -> tuple[pa.RecordBatch, list[ClaimedMessage]]:
        """Return the rows of messages, and the messages. Remove a message that cannot be converted from the batch.

        ``isolated`` is for a retry, because one of the messages may have killed the worker."""
        queue = SinkQueue(self.host)
        messages = queue.read_messages(connection, self.batch_id, self.attempt, seqs)
        if not isolated:
            return self._to_rows(connection, messages)
        results = [self._read_isolated(connection, queue, message) for message in messages]
        rows = pa.concat_batches([rows for rows, _ in results]) if results else self._to_rows(connection, [])[0]
        return rows, [message for _, claimed in results for message in claimed]

    def _read_isolated(
        self, connection: Connection, queue: SinkQueue, message: SinkMessage
    ) -> tuple[pa.RecordBatch, list[ClaimedMessage]]:
        seq = message.claimed.seq

        def suspend() -> tuple[pa.RecordBatch, list[ClaimedMessage]]:
            hint = "Correct the message or the map, and resume the instance."
            self.suspend_or_route(connection, message.claimed, worker_death_failure(DeliveryRefused, hint=hint))
            return self._to_rows(connection, [])

        result = attempt_alone(
            self.login,
            record=lambda: queue.record_attempt(connection, self.batch_id, self.attempt, seq),
            undo=lambda another: queue.clear_attempts(another, self.batch_id, seq),
            process=lambda: self._to_rows(connection, [message]),
            suspend=suspend,
        )
        queue.clear_attempts(connection, self.batch_id, seq)
        return result

    def _to_rows(
        self, connection: Connection, messages: Sequence[SinkMessage]
    ) -> tuple[pa.RecordBatch, list[ClaimedMessage]]:
        reader = _Reader(connection, HostQueues(self.host))
        mapped: list[tuple[SinkMessage, Message]] = []
        for batch_message in messages:
            try:
                message = build_message(batch_message.claimed, reader)
                mapped.append((batch_message, self.port.maps.running.map_message(message)))
            except Exception as error:
                self.suspend_or_route(connection, batch_message.claimed, to_row_failure(error))
        rows, refused = self.rows.convert([(message, batch_message.published_at) for batch_message, message in mapped])
        for refusal in refused:
            self.suspend_or_route(connection, mapped[refusal.index][0].claimed, refusal.failure)
        removed = {refusal.index for refusal in refused}
        return rows, [batch_message.claimed for n, (batch_message, _) in enumerate(mapped) if n not in removed]

    def suspend_or_route(self, connection: Connection, claimed: ClaimedMessage, failure: MessageFailure) -> None:
        """Remove a message from the batch: suspend it, or publish an error message if the port routes failures. Raise
        ClaimLost if the batch was taken over, because the other attempt may have written the message."""
        _log.warning("%s: message %s cannot be written: %s", self.port.name, claimed.message_id, failure.what)
        transaction(connection, lambda connection: self._remove(connection, claimed, failure))

    def _remove(self, connection: Connection, claimed: ClaimedMessage, failure: MessageFailure) -> None:
        queue = SinkQueue(self.host)
        description = str(failure)[:MAX_DESCRIPTION]
        queue.lock(connection, self.batch_id, self.attempt)
        try:
            if self.port.route_failures and self._route(connection, queue.queues, claimed, failure.code, description):
                return
        except ClaimLost:
            return  # another attempt of this task has removed it
        suspension = Suspension(code=failure.code, description=description, adapter=self.port.kind, uri=self.port.uri)
        queue.queues.suspend(connection, self.batch_id, {claimed.seq: suspension})

    def _route(
        self, connection: Connection, queues: HostQueues, claimed: ClaimedMessage, code: str, description: str
    ) -> bool:
        context = build_message(claimed, _Reader(connection, queues)).context if claimed.context is not None else None
        failure = Failure(
            code=code,
            description=description,
            message_id=claimed.message_id,
            instance_id=claimed.instance_id,
            failed_at=system_clock(),
            adapter=self.port.kind,
            uri=self.port.uri,
            send_port=self.port.name,
            message_type=None if context is None else get_message_type(context),
        )
        return FailedMessages(queues).route(connection, claimed, failure)


class _Reader:
    """Reads the parts and fragments of the messages of a batch."""

    def __init__(self, connection: Connection, queues: HostQueues) -> None:
        self._connection = connection
        self._queues = queues

    def read_parts(self, claimed: ClaimedMessage) -> list[StoredPart]:
        return self._queues.read_parts(self._connection, claimed.claim_id, claimed.message_id)

    def read_fragments(
        self, claimed: ClaimedMessage, part_id: uuid.UUID, *, start: int, count: int
    ) -> list[tuple[int, bytes]]:
        return self._queues.read_fragments(
            self._connection, claimed.claim_id, claimed.message_id, part_id, start=start, count=count
        )


def split_into_chunks(seqs: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Split the message numbers of a batch into chunks that fit into the memory of a task."""
    result: list[list[int]] = []
    capacity = 0
    for seq, size in zip(seqs, sizes, strict=True):
        if not result or len(result[-1]) >= CHUNK_MESSAGES or capacity < size:
            result.append([])
            capacity = CHUNK_BYTES
        result[-1].append(seq)
        capacity -= size
    return result
