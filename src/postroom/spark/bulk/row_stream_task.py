"""The task of a row stream: publish the rows of a partition of a micro-batch. Runs in a Spark worker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from postroom.agent.idempotency import unit_for_partition
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.row_units import RowUnit, receive_rows
from postroom.errors import StateError
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.storage.receipts import read_progress
from postroom.messagebox.throttling.pace import Pace
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.task import Worker
from postroom.spark.bulk.read_plan import rows_pipeline, rows_reader
from postroom.spark.receive.task import make_tally
from postroom.spark.worker import close_worker, get_worker

#: Maximum seconds that a task waits in total while receiving is throttled.
_MAX_WAIT_SECONDS = 30.0
#: The local properties in which Spark stores the query and the batch of a task.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, kw_only=True)
class RowStreamTask:
    """The function that Spark runs on the rows of a stream; pickled once per query."""

    login: Login
    location: ReceiveLocation
    paced: bool = True
    """Slow down between transactions while too many messages wait in the MessageBox."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield make_tally([self.receive(_read_unit_id(), batches)])

    def receive(self, unit_id: uuid.UUID, batches: Iterator[pa.RecordBatch]) -> ReceiveResult:
        """Publish the rows of a unit that are not published yet. Raise if there are too many bad rows, or if the
        MessageBox does not answer."""
        worker = get_worker(self.login)
        try:
            limit = PartitionLimit(worker.connection, unit_id, rows_reader(self.location).bad_rows)
            rows = receive_rows(
                worker.receiver,
                self.location,
                rows_pipeline(self.location),
                RowUnit(unit_id=unit_id),
                (batch for batch in batches if batch.num_rows),
                progress=read_progress(worker.connection, [unit_id])[unit_id],
                bad_content_type="application/octet-stream",
                limit=limit,
                pace=self._pace(worker),
            )
        except BaseException:
            close_worker(self.login)
            raise
        if rows.stopped:
            raise StateError(
                f"More rows of one batch are bad or have no subscriber than bad_rows allows ({limit.max_bad:,}).",
                hint="Raise the limit, or add the missing subscriber, and apply the application again.",
            )
        return ReceiveResult(
            interchange_id=unit_id, published=rows.published, suspended=rows.suspended, routed=rows.routed
        )

    def _pace(self, worker: Worker) -> Callable[[], bool]:
        """Return the pace. A batch of a stream cannot end early, so the task waits a little longer and then
        continues."""
        if not self.paced:
            return lambda: True
        location = self.location
        pace = Pace(worker.connection, location.host_id, location.location_id, max_wait=_MAX_WAIT_SECONDS)
        return lambda: pace() or True


class PartitionLimit:
    """The limit of rows of a partition of a batch that are bad or have no subscriber. A stream has no end, so there is
    no share of bad rows."""

    def __init__(self, connection: Connection, unit_id: uuid.UUID, max_bad: int | None) -> None:
        self.max_bad = max_bad
        self._connection = connection
        self._unit_id = unit_id

    def allows(self, *, bad: int, unroutable: int, rows: int) -> bool:
        if self.max_bad is None:
            return True
        known = read_progress(self._connection, [self._unit_id])[self._unit_id].bad
        return known + bad + unroutable <= self.max_bad


def _read_unit_id() -> uuid.UUID:
    """Return the id of the unit of this task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        # Without them a row cannot be identified.
        raise StateError(f"This version of Spark does not set {_QUERY_ID} and {_BATCH_ID} in its tasks.")
    return unit_for_partition(uuid.UUID(query_id), int(batch_id), context.partitionId())
