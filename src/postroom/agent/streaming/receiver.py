"""The streaming lane: run interchanges through the receive pipeline, match their documents and publish them.

The same code runs in Spark tasks and in hosts. One transaction publishes many interchanges. Bad documents become
suspended instances or error messages in the same transaction. Each chunk has a receipt, so that a second run of the
same interchange finds nothing to do. Two concurrent runs can divide an interchange into different chunks. They take
turns: a run writes a chunk only if it knows where the chunk before it ends.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from postroom.agent.error_messages import is_returned_to_adapter
from postroom.agent.publish import Publisher
from postroom.agent.routing.matching import Matcher
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ConcurrentAttempt, DocumentBatch, ReceiveResult, TooManyFailures
from postroom.agent.streaming.interchange import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    Chunk,
    DisassemblingPipeline,
    Interchange,
    read_all_chunks,
    read_chunks,
    reject_from,
    reject_rest,
)
from postroom.clock import Clock, system_clock
from postroom.errors import MessageFailure, StateError
from postroom.maps.inbound import choose_pipeline
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.receipts import Progress, read_progress
from postroom.ports.receive_locations import ReceiveLocation

_log = logging.getLogger(__name__)


class Receiver:
    """Publishes interchanges over one connection, and keeps the routing table up to date."""

    def __init__(self, connection: Connection, routing: RoutingTable, *, clock: Clock = system_clock) -> None:
        self._connection = connection
        self._routing = routing
        self._clock = clock
        self._publisher = Publisher(connection, routing)

    def receive(
        self,
        location: ReceiveLocation,
        interchanges: Sequence[Interchange],
        *,
        pace: Callable[[], bool] = lambda: True,
    ) -> list[ReceiveResult]:
        """Publish the interchanges, except for the chunks that are published already.

        Afterwards every interchange is completely published, by this run or another, and can be deleted at its source,
        unless it is ``unfinished``. ``pace`` is called between two transactions. It may block, and returns False to
        stop. An interchange that its pipeline rejects is ``refused`` if its adapter wants to decide about it, and not
        suspended. Raise errors of the environment, and OSError if a body cannot be read. Failures of an interchange are
        in its result."""
        self._routing.catch_up(self._connection)
        pipeline = choose_pipeline(location.pipeline, location.maps)
        unfinished = {interchange.interchange_id: interchange for interchange in interchanges}
        results = {unit: ReceiveResult(interchange_id=unit) for unit in unfinished}
        while unfinished:
            progress = read_progress(self._connection, list(unfinished))
            unfinished = {unit: interchange for unit, interchange in unfinished.items() if not progress[unit].done}
            unroutable: Counter[uuid.UUID] = Counter()
            try:
                for number, group in enumerate(_group_chunks(_read_unfinished(pipeline, unfinished, progress))):
                    if number and not pace():
                        return [replace(result, unfinished=unit in unfinished) for unit, result in results.items()]
                    # One chunk is read ahead. Its interchange may have been rejected since then.
                    chunks = [chunk for chunk in group if chunk.interchange.interchange_id in unfinished]
                    if not (chunks := _take_refused(chunks, unfinished, results)):
                        continue
                    published, batch = self._publish_or_reject(location, pipeline.content_type, chunks, unroutable)
                    for chunk, result, count in zip(published, batch.chunk_results, batch.unroutable, strict=True):
                        unit = result.interchange_id
                        results[unit] = results[unit].plus(result)
                        unroutable[unit] += count
                        if chunk.is_last:
                            del unfinished[unit]
            except ConcurrentAttempt:
                continue
            if unfinished:
                unit = next(iter(unfinished))
                raise StateError(f"Interchange {unit} has no last chunk, although all of it was read.")
        return list(results.values())

    def reject(self, location: ReceiveLocation, interchange: Interchange, failure: MessageFailure) -> ReceiveResult:
        """Suspend the unpublished rest of an interchange as it was received, without running its pipeline."""
        self._routing.catch_up(self._connection)
        pipeline = choose_pipeline(location.pipeline, location.maps)
        while not (progress := self.read_progress(interchange.interchange_id)).done:
            with suppress(ConcurrentAttempt):
                chunk = reject_rest(pipeline, interchange, failure, progress)
                return self.publish_chunk(location, pipeline.content_type, chunk)
        return ReceiveResult(interchange_id=interchange.interchange_id)

    def publish_chunk(self, location: ReceiveLocation, content_type: str, chunk: Chunk) -> ReceiveResult:
        """Publish one chunk in its own transaction. ``content_type`` is that of bad rows. Raise ConcurrentAttempt if
        another attempt has published a chunk of this number, and TooManyFailures if its limit is exceeded."""
        [received] = self._publish(location, content_type, [chunk]).chunk_results
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

        If the interchange fails as a whole, or has too many failures, the failure is raised. Bad documents of a
        recoverable interchange are suspended alone, as in ``receive`` (RCV-13)."""
        pipeline = choose_pipeline(location.pipeline, location.maps, interchange.suspended_document)
        # Components and maps run before the transaction, without locks.
        chunks = read_all_chunks(pipeline, interchange)
        fails_as_a_whole = not chunks[0].recoverable
        if fails_as_a_whole:
            # The caller routes or suspends the failure, because the message is in the MessageBox already.
            location = replace(location, port={**location.port, "route_failures": False})

        def make_batch(_: Matcher) -> DocumentBatch:
            batch = DocumentBatch(
                location,
                pipeline.content_type,
                chunks,
                self._routing.load(self._connection),
                takes_receipts=False,
                fails_as_a_whole=fails_as_a_whole,
            )
            if batch.rejection is not None:
                raise batch.rejection
            return batch

        try:
            self._publisher.run(make_batch, before=complete)
        except TooManyFailures as excess:
            raise excess.failure from None

    def _publish_or_reject(
        self,
        location: ReceiveLocation,
        content_type: str,
        chunks: Sequence[Chunk],
        unroutable_before: Mapping[uuid.UUID, int],
    ) -> tuple[Sequence[Chunk], DocumentBatch]:
        """Publish chunks in one transaction. Return the chunks that were published, and their batch. A chunk with too
        many failures, and what follows it in its interchange, are replaced by a rejection."""
        while True:
            try:
                return chunks, self._publish(location, content_type, chunks, unroutable_before)
            except TooManyFailures as excess:
                chunks = _replace_rest(chunks, excess.chunk, reject_from(excess.chunk, excess.failure))

    def _publish(
        self,
        location: ReceiveLocation,
        content_type: str,
        chunks: Sequence[Chunk],
        unroutable_before: Mapping[uuid.UUID, int] | None = None,
    ) -> DocumentBatch:
        batch = self._publisher.run(
            # Documents are matched in columns (BatchMatches), and not as the messages of a Matcher.
            lambda _: DocumentBatch(
                location,
                content_type,
                chunks,
                self._routing.load(self._connection),
                unroutable_before=unroutable_before,
                clock=self._clock,
            )
        )
        dropped = sum(result.dropped for result in batch.chunk_results)
        if dropped:
            text = "%s: %d messages without an authenticated originator were dropped, as receive port %s requires"
            _log.warning(text, location.name, dropped, location.port_name)
        return batch


def _read_unfinished(
    pipeline: DisassemblingPipeline,
    unfinished: Mapping[uuid.UUID, Interchange],
    progress: Mapping[uuid.UUID, Progress],
) -> Iterator[Chunk]:
    """Yield the chunks of the ``unfinished`` interchanges, which may become fewer meanwhile."""
    for unit, interchange in list(unfinished.items()):
        for chunk in read_chunks(pipeline, interchange, progress[unit]):
            if unit not in unfinished:
                break
            yield chunk


def _take_refused(
    chunks: Sequence[Chunk], unfinished: dict[uuid.UUID, Interchange], results: dict[uuid.UUID, ReceiveResult]
) -> list[Chunk]:
    """Finish the interchanges that their adapter decides about. Return the chunks of the others."""
    for chunk in filter(_is_refused, chunks):
        unit = chunk.interchange.interchange_id
        results[unit] = replace(results[unit], refused=chunk.rejection)
        del unfinished[unit]
    return [chunk for chunk in chunks if chunk.interchange.interchange_id in unfinished]


def _is_refused(chunk: Chunk) -> bool:
    """Return True if the pipeline has rejected a whole interchange, and its adapter decides what happens with it."""
    is_whole = chunk.rejection is not None and not chunk.number
    return is_whole and is_returned_to_adapter(chunk.interchange.context)


def _replace_rest(chunks: Sequence[Chunk], first: Chunk, rejection: Chunk) -> list[Chunk]:
    """Return the chunks with ``rejection`` in place of ``first`` and the later chunks of its interchange."""
    unit = first.interchange.interchange_id
    return [
        rejection if chunk.number == first.number and chunk.interchange.interchange_id == unit else chunk
        for chunk in chunks
        if chunk.interchange.interchange_id != unit or chunk.number <= first.number
    ]


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
