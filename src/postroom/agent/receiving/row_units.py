"""Rows that Spark's own readers made, published: a unit of rows in chunks, each with its receipt.

A unit is a split of a file, or a partition of a micro-batch: rows that come again in the same order whenever they are
read again. What has a receipt is left out row by row, so that batches may end at other rows than before: where Spark
ends one depends on how large its rows are, and that on the pipeline.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from postroom.agent.publish import Progress
from postroom.agent.receiving.document_batch import ConcurrentAttempt, Received
from postroom.agent.receiving.interchange import Chunk, Interchange
from postroom.agent.receiving.receiver import Receiver
from postroom.errors import StateError
from postroom.message import Body, Bytes, Context
from postroom.messagebox.configuration import ReceiveLocation
from postroom.pipelines import Rows
from postroom.pipelines.documents.disassembled_batch import DecodedInterchange
from postroom.pipelines.rows.batch import read_rows


@dataclass(frozen=True, kw_only=True)
class RowUnit:
    """What the rows belong to, and what the messages that come of them share."""

    unit_id: uuid.UUID
    context: Context = field(default_factory=Context)


@dataclass(frozen=True, kw_only=True)
class ReceivedRows:
    """What became of the rows of a unit in this run; what was published before is not counted again."""

    unit_id: uuid.UUID
    rows: int = 0
    bad: int = 0
    published: int = 0
    suspended: int = 0
    routed: int = 0
    stopped: bool = False
    """There were too many bad rows to go on."""
    unfinished: bool = False
    """Some rows are not published yet, because too much waits. They have to come again."""

    def plus(self, rows: int, bad: int, received: Received) -> ReceivedRows:
        return replace(
            self,
            rows=self.rows + rows,
            bad=self.bad + bad,
            published=self.published + received.published,
            suspended=self.suspended + received.suspended,
            routed=self.routed + received.routed,
        )


class BadRowLimit(Protocol):
    """Whether a chunk with bad rows may still be published."""

    def allows(self, *, bad: int, rows: int) -> bool:
        """So many rows are bad of so many."""
        ...


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
    """Publishes those chunks of a unit that are not published yet. Bad rows are suspended alone, as long as there are
    not too many of them. ``pace`` is called before each chunk, may take its time, and says whether to go on; the first
    one is published in any case, so that every run comes farther."""
    total = ReceivedRows(unit_id=unit.unit_id)
    receiver.catch_up()
    last = 0
    for batch, is_last in _mark_last(batches):
        first, last = last + 1, last + batch.num_rows
        while progress.last_document < last and not progress.done:
            published = max(0, progress.last_document + 1 - first)
            chunk = _read_chunk(pipeline, unit, batch.slice(published), first + published, progress.next_chunk, is_last)
            bad, rows = len(chunk.failures), chunk.rows + len(chunk.failures)
            if bad and not limit.allows(bad=bad, rows=rows):
                return replace(total, stopped=True)
            if not pace() and total.rows:
                return replace(total, unfinished=True)
            try:
                received = receiver.publish_chunk(location, bad_content_type, chunk)
            except ConcurrentAttempt:
                progress = receiver.read_progress(unit.unit_id)
                continue
            total = total.plus(rows, bad, received)
            progress = Progress(next_chunk=chunk.number + 1, last_document=last, done=is_last)
    if last != progress.last_document or (last and not progress.done):
        raise _other_rows(last, progress)
    return total


def _read_chunk(pipeline: Rows, unit: RowUnit, batch: pa.RecordBatch, first: int, number: int, is_last: bool) -> Chunk:
    read = read_rows(pipeline, batch, first)
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


def _other_rows(count: int, progress: Progress) -> StateError:
    return StateError(
        f"{count:,} rows came again where {progress.last_document:,} were published before.",
        why="What was interrupted goes on by the numbers of its rows, and these are not the rows of then.",
        hint="See what has changed at their source: the same rows have to come again, in the same order.",
    )


def _mark_last(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """One ahead of what is yielded, because the last one has to say so in its receipt."""
    pending: pa.RecordBatch | None = None
    for batch in batches:
        if pending is not None:
            yield pending, False
        pending = batch
    if pending is not None:
        yield pending, True
