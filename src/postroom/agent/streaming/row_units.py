"""Publish rows from Spark's own readers: a unit of rows in chunks, each with its receipt.

A unit is a split of a file, or a partition of a micro-batch. A second read returns the same rows in the same order.
Rows with a receipt are skipped one by one, so that a batch may end at another row than before. The size of a batch
depends on the size of its rows, and that depends on the pipeline.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from postroom.agent.streaming.document_batch import ConcurrentAttempt, ReceiveResult, TooManyFailures
from postroom.agent.streaming.failure_limit import ChunkFailures, FailureCheck
from postroom.agent.streaming.interchange import Chunk, Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import MessageFailure, PipelineFailure, StateError, format_count
from postroom.message import Body, Bytes, Context
from postroom.messagebox.storage.receipts import Progress
from postroom.pipelines import Rows
from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
from postroom.pipelines.rows.batch import RowOrigin, read_rows
from postroom.ports.receive_locations import ReceiveLocation


@dataclass(frozen=True, kw_only=True)
class RowUnit:
    """A unit of rows, and the context that their messages share."""

    unit_id: uuid.UUID
    context: Context = field(default_factory=Context)
    origin: RowOrigin | None = None
    """The file that the rows come from."""


@dataclass(frozen=True, kw_only=True)
class ReceivedRows:
    """What became of the rows of a unit in this run. Rows that were published before are not counted again."""

    unit_id: uuid.UUID
    rows: int = 0
    bad: int = 0
    published: int = 0
    suspended: int = 0
    routed: int = 0
    stopped: bool = False
    """Too many rows are bad or have no subscriber."""
    unfinished: bool = False
    """Some rows are not published yet because of throttling. They have to be read again."""

    def plus(self, rows: int, bad: int, received: ReceiveResult) -> ReceivedRows:
        return replace(
            self,
            rows=self.rows + rows,
            bad=self.bad + bad,
            published=self.published + received.published,
            suspended=self.suspended + received.suspended,
            routed=self.routed + received.routed,
        )


class BadRowLimit(Protocol):
    """A limit for rows that are bad or have no subscriber."""

    def allows(self, *, bad: int, unroutable: int, rows: int) -> bool:
        """Return True if a chunk may be published that has ``bad`` bad rows, and ``unroutable`` rows without a
        subscriber, among its ``rows``."""
        ...


@dataclass(frozen=True, kw_only=True)
class _ChunkLimit(FailureCheck):
    """The limit of one chunk of rows."""

    limit: BadRowLimit
    rows: int

    def check_failures(self, failures: ChunkFailures) -> MessageFailure | None:
        bad, unroutable = failures.bad, failures.unroutable
        if not (bad or unroutable) or self.limit.allows(bad=len(bad), unroutable=len(unroutable), rows=self.rows):
            return None
        return PipelineFailure("Too many rows are bad or have no subscriber.")


def receive_rows(
    receiver: Receiver,
    location: ReceiveLocation,
    pipeline: Rows,
    unit: RowUnit,
    batches: Iterable[pa.RecordBatch],
    *,
    progress: Progress,
    bad_content_type: str,
    limit: BadRowLimit,
    pace: Callable[[], bool] = lambda: True,
) -> ReceivedRows:
    """Publish the chunks of a unit that are not published yet. Suspend rows that are bad or have no subscriber alone,
    up to the limit.

    ``pace`` is called before each chunk. It may block, and returns False to stop. The first chunk is always published,
    so that every run makes progress."""
    total = ReceivedRows(unit_id=unit.unit_id)
    receiver.catch_up()
    last = 0
    for batch, is_last in _mark_last(batches):
        first, last = last + 1, last + batch.num_rows
        while progress.last_document < last and not progress.done:
            published = max(0, progress.last_document + 1 - first)
            chunk = _read_chunk(pipeline, unit, batch.slice(published), first + published, progress.next_chunk, is_last)
            bad, rows = len(chunk.failures), chunk.rows + len(chunk.failures)
            chunk = replace(chunk, failure_limit=_ChunkLimit(limit=limit, rows=rows))
            if not pace() and total.rows:
                return replace(total, unfinished=True)
            try:
                received = receiver.publish_chunk(location, bad_content_type, chunk)
            except TooManyFailures:
                return replace(total, stopped=True)
            except ConcurrentAttempt:
                progress = receiver.read_progress(unit.unit_id)
                continue
            total = total.plus(rows, bad, received)
            progress = Progress(next_chunk=chunk.number + 1, last_document=last, done=is_last)
    if last != progress.last_document or (last and not progress.done):
        raise _changed_rows_error(last, progress)
    return total


def _read_chunk(pipeline: Rows, unit: RowUnit, batch: pa.RecordBatch, first: int, number: int, is_last: bool) -> Chunk:
    read = read_rows(pipeline, batch, first, unit.origin)
    source: Body = Bytes(read.large)
    return Chunk(
        interchange=Interchange(interchange_id=unit.unit_id, body=Bytes(b""), context=unit.context),
        number=number,
        documents=pa.Table.from_batches([read.messages]),
        failures=read.failures,
        bad=len(read.failures),
        decoded=DecodedInterchange(body=source, context=unit.context, content_type=pipeline.body_content_type),
        recoverable=True,
        last_document=first + batch.num_rows - 1,
        is_last=is_last,
    )


def _changed_rows_error(count: int, progress: Progress) -> StateError:
    return StateError(
        f"A second read returned {format_count(count, 'row')}, but {progress.last_document:,} were published before.",
        why="An interrupted unit continues by row number, and these are not the same rows.",
        hint="Check what has changed at the source. It must return the same rows in the same order.",
    )


def _mark_last(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield each batch with a flag for the last one, whose receipt ends the unit. Reads one batch ahead."""
    pending: pa.RecordBatch | None = None
    for batch in batches:
        if pending is not None:
            yield pending, False
        pending = batch
    if pending is not None:
        yield pending, True
