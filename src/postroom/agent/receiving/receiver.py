"""The streaming lane: run interchanges through the receive pipeline, match their documents and publish them.

The same code runs in Spark tasks and in hosts. One transaction publishes many interchanges. Bad documents become
suspended instances or error messages in the same transaction. Each chunk has a receipt, so that a second run of the
same interchange finds nothing to do. Two concurrent runs can divide an interchange into different chunks. They take
turns: a run writes a chunk only if it knows where the chunk before it ends.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from postroom.agent.idempotency import Progress, read_progress
from postroom.agent.publish import Publisher
from postroom.agent.receiving.document_batch import ConcurrentAttempt, DocumentBatch, Received
from postroom.agent.receiving.interchange import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    Chunk,
    Interchange,
    read_all_chunks,
    read_chunks,
    reject_rest,
)
from postroom.agent.routing.matching import IndexMatcher, Matcher
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock, system_clock
from postroom.errors import MessageFailure, StateError
from postroom.maps.inbound import MappedPipeline, build_resumed_pipeline
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.pipelines import ReceivePipeline

_log = logging.getLogger(__name__)


class Receiver:
    """Publishes interchanges over one connection, and keeps one routing table up to date."""

    def __init__(self, connection: Connection, routing: RoutingTable, *, clock: Clock = system_clock) -> None:
        self._connection = connection
        self._routing = routing
        self._clock = clock
        self._publisher = Publisher(connection, IndexMatcher(routing))

    def receive(
        self,
        location: ReceiveLocation,
        interchanges: Sequence[Interchange],
        *,
        pace: Callable[[], bool] = lambda: True,
    ) -> list[Received]:
        """Publish the interchanges, except for the chunks that are published already.

        Afterwards every interchange is completely published, by this run or another, and can be deleted at its source,
        unless it is ``unfinished``. ``pace`` is called between two transactions. It may block, and returns False to
        stop. Raises only if the MessageBox does not answer."""
        self._routing.catch_up(self._connection)
        pipeline = _get_pipeline(location)
        outcome = {one.interchange_id: Received(interchange_id=one.interchange_id) for one in interchanges}
        left = {one.interchange_id: one for one in interchanges}
        while left:
            progress = read_progress(self._connection, list(left))
            left = {unit: one for unit, one in left.items() if not progress[unit].done}
            chunks = (
                chunk
                for interchange in list(left.values())
                for chunk in read_chunks(pipeline, interchange, progress[interchange.interchange_id])
            )
            try:
                for number, group in enumerate(_group_chunks(chunks)):
                    if number and not pace():
                        return [replace(one, unfinished=unit in left) for unit, one in outcome.items()]
                    for one in self._publish(location, pipeline.content_type, group):
                        outcome[one.interchange_id] = outcome[one.interchange_id].plus(one)
                    for chunk in group:
                        if chunk.is_last:
                            del left[chunk.interchange.interchange_id]
            except ConcurrentAttempt:
                continue
            if left:
                raise StateError(f"Interchange {next(iter(left))} has no last chunk, although all of it was read.")
        return list(outcome.values())

    def reject(self, location: ReceiveLocation, interchange: Interchange, failure: MessageFailure) -> Received:
        """Suspend the unpublished rest of an interchange as it was received, without running its pipeline."""
        self._routing.catch_up(self._connection)
        pipeline = _get_pipeline(location)
        while not (progress := self.read_progress(interchange.interchange_id)).done:
            with suppress(ConcurrentAttempt):
                chunk = reject_rest(pipeline, interchange, failure, progress)
                return self.publish_chunk(location, pipeline.content_type, chunk)
        return Received(interchange_id=interchange.interchange_id)

    def publish_chunk(self, location: ReceiveLocation, content_type: str, chunk: Chunk) -> Received:
        """Publish one chunk in its own transaction. ``content_type`` is that of bad rows. Raise ConcurrentAttempt if
        another attempt has published a chunk of this number."""
        [received] = self._publish(location, content_type, [chunk])
        return received

    def read_progress(self, unit: uuid.UUID) -> Progress:
        """Return how much of a unit is published."""
        return read_progress(self._connection, [unit])[unit]

    def catch_up(self) -> None:
        """Read the subscriptions that have changed, before the next commit does."""
        self._routing.catch_up(self._connection)

    def receive_again(
        self, location: ReceiveLocation, interchange: Interchange, complete: Callable[[Connection], object]
    ) -> None:
        """Publish a resumed interchange, or a document that was suspended alone. Call ``complete`` in the same
        transaction.

        If the interchange fails as a whole, the failure is raised. Bad documents of a recoverable interchange are
        suspended alone, as in ``receive`` (RCV-13)."""
        pipeline = build_resumed_pipeline(location.pipeline, location.maps, interchange.suspended_document)
        # Components and maps run before the transaction, without locks.
        chunks = read_all_chunks(pipeline, interchange)
        fails_as_a_whole = not chunks[0].recoverable
        if fails_as_a_whole:
            # The caller routes or suspends the failure, because the message is in the MessageBox already.
            location = replace(location, route_failures=False)

        def make_batch(_: Matcher) -> DocumentBatch:
            batch = DocumentBatch(
                location,
                pipeline.content_type,
                chunks,
                self._routing,
                takes_receipts=False,
                fails_as_a_whole=fails_as_a_whole,
            )
            if batch.rejection is not None:
                raise batch.rejection
            return batch

        self._publisher.run(make_batch, before=complete)

    def _publish(self, location: ReceiveLocation, content_type: str, group: list[Chunk]) -> list[Received]:
        batch = self._publisher.run(
            lambda _: DocumentBatch(location, content_type, group, self._routing, clock=self._clock)
        )
        received = batch.received
        dropped = sum(one.dropped for one in received)
        if dropped:
            text = "%s: %d messages without an authenticated originator were dropped, as receive port %s requires"
            _log.warning(text, location.name, dropped, location.port_name)
        return received


def _get_pipeline(location: ReceiveLocation) -> ReceivePipeline | MappedPipeline:
    return MappedPipeline(location.pipeline, location.maps) if location.has_maps else location.pipeline


def _group_chunks(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Yield the chunks of each transaction. A transaction has at most the documents and bytes of a full chunk."""
    group: list[Chunk] = []
    rows = size = 0
    for chunk in chunks:
        more, documents = chunk.bytes, chunk.rows + len(chunk.failures)
        if group and (rows + documents > CHUNK_ROWS or size + more > CHUNK_BYTES):
            yield group
            group, rows, size = [], 0, 0
        group.append(chunk)
        rows += documents
        size += more
    if group:
        yield group
