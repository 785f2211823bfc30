"""What a task does with its partition of a micro-batch of rows. Runs in a worker of Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from postroom.agent.identity import unit_for_partition
from postroom.agent.publish import read_progress
from postroom.agent.receiving.document_batch import Received
from postroom.agent.receiving.row_units import RowUnit, receive_rows
from postroom.errors import StateError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.streams.throttling import Pace
from postroom.spark.bulk.reading import rows_pipeline, rows_reader
from postroom.spark.executor import Executor, drop_executor, executor_for
from postroom.spark.login import Login
from postroom.spark.receive.tally import tally_of

#: How long the task of a partition waits in all while too much does, in seconds.
_PATIENCE = 30.0
#: Where Spark tells a task which query and which batch of it it works for.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, kw_only=True)
class RowStreamTask:
    """The function that Spark runs on the rows of a stream; pickled once per query."""

    login: Login
    location: ReceiveLocation
    paced: bool = True
    """Whether it slows down while too much waits in the MessageBox."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield tally_of([self.receive(_unit(), batches)])

    def receive(self, unit_id: uuid.UUID, batches: Iterator[pa.RecordBatch]) -> Received:
        """Publishes what of the unit is not published yet. Raises if there are too many bad rows, or the MessageBox
        does not answer."""
        executor = executor_for(self.login)
        try:
            limit = PartitionLimit(rows_reader(self.location).bad_rows)
            rows = receive_rows(
                executor.receiver,
                self.location,
                rows_pipeline(self.location),
                RowUnit(unit_id=unit_id),
                (batch for batch in batches if batch.num_rows),
                progress=read_progress(executor.connection, [unit_id])[unit_id],
                bad_content_type="application/octet-stream",
                limit=limit,
                pace=self._pace(executor),
            )
        except BaseException:
            drop_executor(self.login)
            raise
        if rows.stopped:
            raise StateError(
                f"More than {limit.most:,} rows of one batch are bad, and bad_rows allows no more.",
                hint="Raise the limit and apply the application again.",
            )
        return Received(interchange_id=unit_id, published=rows.published, suspended=rows.suspended, routed=rows.routed)

    def _pace(self, executor: Executor) -> Callable[[], bool]:
        """A batch of a stream has to come to its end, so that it waits a little longer and then goes on."""
        if not self.paced:
            return lambda: True
        pace = Pace(executor.connection, self.location.host_id, patience=_PATIENCE)
        return lambda: pace() or True


class PartitionLimit:
    """How many rows of one partition of a batch may be bad. A stream has no end by which a share could be told."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._bad = 0

    def allows(self, *, bad: int, rows: int) -> bool:
        self._bad += bad
        return self.most is None or self._bad <= self.most


def _unit() -> uuid.UUID:
    """The unit that this task works for."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        # Without them a row could not be told from another.
        raise StateError(f"This Spark does not tell its tasks {_QUERY_ID} and {_BATCH_ID}.")
    return unit_for_partition(uuid.UUID(query_id), int(batch_id), context.partitionId())
