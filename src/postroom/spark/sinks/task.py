"""The task of a sink batch: read messages from the queue and convert them to rows. Runs in a Spark worker.

The task may run again after any interruption, and twice at the same time. Reading changes nothing. A message that
cannot be converted to a row, or that kills the worker, is removed from the batch once: it is suspended, or routed as
an error message (ADR 0029).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, groupby
from typing import NamedTuple

import pyarrow as pa

from postroom.agent.failed_messages import FailedMessages, describe_failure
from postroom.agent.poison_messages import attempt_alone, process_death_failure
from postroom.clock import system_clock
from postroom.errors import ClaimLost, DeliveryRefused, MessageFailure
from postroom.maps.port_maps import NO_MAPS, PortMaps
from postroom.message import Message
from postroom.messagebox.connection import Connection, Login, transaction
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, Suspension
from postroom.messagebox.sinks.sink_batches import CHUNK_MESSAGES, SeqRange, SinkMessage, SinkQueue
from postroom.messagebox.storage.claimed_messages import ConnectionReader, build_message
from postroom.pipelines.definition import FORMAT_SECONDS
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT, Send
from postroom.processes.garbage_collection import delay_garbage_collection
from postroom.spark.sinks.row_format import RowFormat, convert_rows, has_simple_columns, to_row_failure
from postroom.spark.worker import GRACE, freeze_modules, guard_worker, provide_lookups

_log = logging.getLogger(__name__)

#: After a chunk that its bytes have limited, the next one is read with a limit of messages that is at least this.
_MIN_LIMIT = 16
#: After a failed task, so many messages are processed together first.
ISOLATED_TOGETHER = 100


@dataclass(frozen=True, kw_only=True)
class SinkPort:
    """The properties of the send port that a task needs."""

    name: str
    kind: str
    uri: str
    route_failures: bool
    maps: PortMaps = NO_MAPS
    pipeline: Send = PASS_THRU_TRANSMIT

    @property
    def changes_messages(self) -> bool:
        return bool(self.maps) or bool(self.pipeline)

    @property
    def longest_seconds(self) -> float:
        """The longest time limit of a call for one message."""
        return max(self.maps.longest_seconds, self.pipeline.seconds if self.pipeline else 0.0) or FORMAT_SECONDS

    def process(self, message: Message) -> Message | None:
        """Apply the maps and the send pipeline. Return None if the pipeline consumed the message."""
        return self.pipeline.run(self.maps.running.map_message(message))


class RowChunk(NamedTuple):
    """Rows, and the number of the message of each row."""

    rows: pa.RecordBatch
    seqs: list[int]


@dataclass(frozen=True, kw_only=True)
class SinkTask:
    """The function that Spark runs on the ranges of a batch. It yields the rows."""

    login: Login
    host: str
    port: SinkPort
    batch_id: uuid.UUID
    attempt: int
    rows: RowFormat

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, chunk in self.read_chunks(batches):
            yield chunk.rows

    def read_chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Connection, RowChunk]]:
        """Yield the task's connection and the rows of each chunk. The task connects at its first range."""
        freeze_modules()
        with guard_worker(self.port.longest_seconds + GRACE) as is_retry:
            # A batch that was opened before may have killed the worker or the process that had it.
            isolated = is_retry or self.attempt > 1
            connection: Connection | None = None
            provide_lookups(self.login)
            try:
                for batch in batches:
                    for first, last in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        connection = connection or self.login.connect("sink")
                        for chunk in self.read(connection, SeqRange(first, last), isolated=isolated):
                            yield connection, chunk
            finally:
                if connection is not None:
                    connection.close()

    def read(self, connection: Connection, seqs: SeqRange, *, isolated: bool = False) -> Iterator[RowChunk]:
        """Yield the rows of the messages with these numbers. Remove a message that cannot be converted from the batch.

        ``isolated`` is for a retry, because one of the messages may have killed the worker."""
        limit = CHUNK_MESSAGES
        first = seqs.first
        is_simple = not (isolated or self.port.changes_messages) and has_simple_columns(self.rows)
        read = self._read_simple if is_simple else self._read
        while True:
            found, chunk = read(connection, SeqRange(first, seqs.last), limit, isolated)
            if found:
                yield chunk
            if not found or found[-1] == seqs.last:
                return
            first = found[-1] + 1
            # Large messages: read no more of them than the chunk is going to have.
            limit = max(_MIN_LIMIT, min(CHUNK_MESSAGES, 2 * len(found)))

    def _read_simple(
        self, connection: Connection, seqs: SeqRange, limit: int, isolated: bool
    ) -> tuple[list[int], RowChunk]:
        """Return the numbers of the messages of the next chunk, and their rows. Messages that are not simple are read
        again."""
        queue = SinkQueue(self.host)
        with_body = self.rows.body != "none" or self.rows.parsed is not None
        with delay_garbage_collection():
            found = queue.read_rows(connection, self.batch_id, self.attempt, seqs, limit=limit, with_body=with_body)
            is_whole = all(found.is_simple)
            simple = found if is_whole else found.select(lambda column: list(compress(column, found.is_simple)))
            batches, failed = convert_rows(self.rows, simple)
        seqs_found = list(found.seqs)
        if is_whole and not failed:
            return seqs_found, RowChunk(self._combine(batches), seqs_found)
        converted = set(simple.seqs).difference(failed)
        written = [seq for seq in simple.seqs if seq in converted]
        for is_converted, group in groupby(seqs_found, converted.__contains__):
            if not is_converted:
                others = list(group)
                _, chunk = self._read(connection, SeqRange(others[0], others[-1]), len(others), isolated)
                batches.append(chunk.rows)
                written += chunk.seqs
        return seqs_found, RowChunk(self._combine(batches), written)

    def _read(self, connection: Connection, seqs: SeqRange, limit: int, isolated: bool) -> tuple[list[int], RowChunk]:
        """Return the numbers of the messages of the next chunk, and their rows."""
        queue = SinkQueue(self.host)
        messages = queue.read_messages(connection, self.batch_id, self.attempt, seqs, limit=limit)
        if isolated:
            chunks = list(self._read_pieces(connection, queue, messages))
            rows = self._combine([chunk.rows for chunk in chunks])
            chunk = RowChunk(rows, [seq for one in chunks for seq in one.seqs])
        else:
            chunk = self._to_rows(connection, messages)
        return [message.claimed.seq for message in messages], chunk

    def _read_pieces(
        self, connection: Connection, queue: SinkQueue, messages: Sequence[SinkMessage]
    ) -> Iterator[RowChunk]:
        """Yield the rows of messages of which one may have killed the worker. A piece of many messages is processed
        together. If that kills the worker, the next attempt processes the messages of this piece alone."""
        for start in range(0, len(messages), ISOLATED_TOGETHER):
            piece = messages[start : start + ISOLATED_TOGETHER]
            alone: Sequence[SinkMessage] = piece
            if len(messages) > ISOLATED_TOGETHER:
                seqs = [message.claimed.seq for message in piece]
                suspected = queue.suspect(connection, self.batch_id, self.attempt, seqs)
                alone = [message for message in piece if message.claimed.seq in suspected]
                yield self._read_together(
                    connection, queue, [message for message in piece if message.claimed.seq not in suspected]
                )
            for message in alone:
                yield self._read_isolated(connection, queue, message)

    def _read_together(self, connection: Connection, queue: SinkQueue, messages: Sequence[SinkMessage]) -> RowChunk:
        seqs = [message.claimed.seq for message in messages]
        result = attempt_alone(
            partial(self.login.connect, "attempts"),
            record=lambda: 0,  # recorded by the caller
            undo=lambda another: queue.clear_attempts(another, self.batch_id, seqs),
            process=lambda: self._to_rows(connection, messages),
            suspend=lambda: self._to_rows(connection, []),
        )
        queue.clear_attempts(connection, self.batch_id, seqs)
        return result

    def _read_isolated(self, connection: Connection, queue: SinkQueue, message: SinkMessage) -> RowChunk:
        seq = message.claimed.seq

        def suspend() -> RowChunk:
            hint = "Correct the message, the map or the pipeline, and resume the instance."
            self.suspend_or_route(
                connection, message.claimed, process_death_failure(DeliveryRefused, process="worker", hint=hint)
            )
            return self._to_rows(connection, [])

        result = attempt_alone(
            partial(self.login.connect, "attempts"),
            record=lambda: queue.record_attempt(connection, self.batch_id, self.attempt, seq),
            undo=lambda another: queue.clear_attempts(another, self.batch_id, [seq]),
            process=lambda: self._to_rows(connection, [message]),
            suspend=suspend,
        )
        queue.clear_attempts(connection, self.batch_id, [seq])
        return result

    def _to_rows(self, connection: Connection, messages: Sequence[SinkMessage]) -> RowChunk:
        reader = ConnectionReader(connection, HostQueues(self.host))
        mapped: list[tuple[SinkMessage, Message]] = []
        for batch_message in messages:
            try:
                outgoing = self.port.process(build_message(batch_message.claimed, reader))
                if outgoing is not None:
                    mapped.append((batch_message, outgoing))
            except Exception as error:
                self.suspend_or_route(connection, batch_message.claimed, to_row_failure(error))
        rows, refused = self.rows.convert([(message, batch_message.published_at) for batch_message, message in mapped])
        for refusal in refused:
            self.suspend_or_route(connection, mapped[refusal.index][0].claimed, refusal.failure)
        removed = {refusal.index for refusal in refused}
        return RowChunk(rows, [message.claimed.seq for n, (message, _) in enumerate(mapped) if n not in removed])

    def _combine(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches(batches) if batches else self.rows.schema.empty_table().to_batches()[0]

    def refuse(self, connection: Connection, seq: int, failure: MessageFailure) -> None:
        """Suspend or route the message with this number."""
        messages = SinkQueue(self.host).read_messages(connection, self.batch_id, self.attempt, SeqRange(seq, seq))
        for message in messages:
            self.suspend_or_route(connection, message.claimed, failure)

    def write_accepted(
        self,
        connection: Connection,
        seqs: Sequence[int],
        write: Callable[[int, int], object],
        first: int = 0,
        end: int | None = None,
    ) -> None:
        """Write the rows of the messages with these numbers. ``write`` gets the positions of the first row and of the
        end, and raises MessageFailure if the target rejects a row. Such rows are found by bisection, and their messages
        are suspended or routed."""
        end = len(seqs) if end is None else end
        try:
            write(first, end)
        except MessageFailure as failure:
            middle = (first + end) // 2
            if middle > first:
                self.write_accepted(connection, seqs, write, first, middle)
                self.write_accepted(connection, seqs, write, middle, end)
            else:
                self.refuse(connection, seqs[first], failure)

    def suspend_or_route(self, connection: Connection, claimed: ClaimedMessage, failure: MessageFailure) -> None:
        """Remove a message from the batch: suspend it, or publish an error message if the port routes failures. Raise
        ClaimLost if the batch was taken over, because the other attempt may have written the message."""
        _log.warning(
            "%s: message %s cannot be written: %s",
            self.port.name,
            claimed.message_id,
            failure.what,
            extra=claimed.log_ids,
        )
        transaction(connection, lambda connection: self._remove(connection, claimed, failure))

    def _remove(self, connection: Connection, claimed: ClaimedMessage, failure: MessageFailure) -> None:
        queue = SinkQueue(self.host)
        suspension = Suspension(
            code=failure.code, description=str(failure)[:MAX_DESCRIPTION], adapter=self.port.kind, uri=self.port.uri
        )
        queue.lock(connection, self.batch_id, self.attempt)
        try:
            if self.port.route_failures:
                routed = describe_failure(claimed, suspension, system_clock(), send_port=self.port.name)
                if FailedMessages(queue.queues).route(connection, claimed, routed):
                    return
        except ClaimLost:
            return  # another attempt of this task has removed it
        queue.queues.suspend(connection, self.batch_id, {claimed.seq: suspension})


def split_into_ranges(seqs: Sequence[int]) -> list[SeqRange]:
    """Split the message numbers of a batch, which are sorted, into ranges for the tasks."""
    starts = range(0, len(seqs), CHUNK_MESSAGES)
    return [SeqRange(seqs[start], seqs[min(start + CHUNK_MESSAGES, len(seqs)) - 1]) for start in starts]
