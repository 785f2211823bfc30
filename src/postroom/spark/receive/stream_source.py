"""A Spark streaming source over the intake of a location, which the MessageBox numbers: file claims, or the inbox.

An offset is the number of an interchange. The MessageBox knows what is still to be received; Spark's checkpoint only
knows which rows this run of the query has read.

The receive task runs inside ``read``, and the source yields the tally of the task. Rows that go from a Python reader to
a Python function pass through the JVM, and each of the two needs a worker. This way a batch has one Python stage, and a
core has one worker.

Python workers take seconds to start, and Spark ends those that had nothing to do for a minute. So the first batch of a
stream is empty, and an idle stream runs an empty batch now and then. The second number of the offset counts these
warm-ups.
"""

# Spark calls the methods by these names.
# ruff: noqa: N802

from __future__ import annotations

import heapq
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles
from pyspark.sql.types import StructType

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connection, LazyConnection, Login
from postroom.messagebox.intake.numbered_interchanges import IntakeRow, find_last_number, read_numbered
from postroom.messagebox.throttling.load import ThrottleWatch

_WARM_SECONDS = 40.0

#: The cost of a row in addition to its bytes, so that many small rows are distributed evenly, too.
_ROW_COST = 16_384
#: A task has its own transaction and takes milliseconds in the JVM. So a batch of few small rows has one task. A larger
#: row may have many messages.
_FEW_ROWS, _SMALL_ROW = 200, 16_384

#: While a batch has at least this number of rows, the next one starts after this time: a batch takes most of a core for
#: a tenth of a second, however few rows it has.
_BUSY_ROWS = 50
_BUSY_SECONDS = 0.3

T = TypeVar("T")
#: What a task runs on its rows. It yields its tally.
TaskFunction = Callable[[Sequence[IntakeRow]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """Whose interchanges a stream reads, and how many at a time."""

    login: Login
    location_id: uuid.UUID
    partitions: int
    """Maximum number of tasks in a batch."""
    max_rows: int
    """Maximum number of rows in a batch."""
    host_id: int | None = None
    """The host whose throttling slows the stream down; None if the stream is not throttled."""


def stream_source(settings: StreamSettings, task: TaskFunction, schema: str) -> type[DataSource]:
    """Return a data source for one location. It reads the rows and yields the results of the task."""
    # The same name at every start, so that the session knows one source for each location.
    unique = f"postroom_{settings.location_id.hex}"
    # Pickled separately: the process that plans batches needs neither the task nor the modules that it imports.
    pickled = pickle.dumps(task)
    columns = schema

    # Defined for every query, so that Spark sends the task with it. Options would be text, and visible in the plan.
    class ReceiveStream(DataSource):
        @classmethod
        def name(cls) -> str:
            return unique

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return NumberedReader(settings, pickled)

    return ReceiveStream


class RowsPartition(InputPartition):
    """The rows of one task."""

    def __init__(self, rows: Sequence[IntakeRow]) -> None:
        super().__init__(None)
        self.rows = tuple(rows)


class NumberedReader(DataSourceStreamReader):
    """Plans batches in a separate process next to the driver, and reads them in the tasks."""

    def __init__(self, settings: StreamSettings, task: bytes = b"") -> None:
        self._settings = settings
        self._task = task
        self._connection = LazyConnection(partial(settings.login.connect, "stream"))
        self._warm_at = 0.0
        self._throttle = None if settings.host_id is None else ThrottleWatch(settings.host_id)
        self._batch_at = 0.0
        self._is_busy = False
        self._all_workers_at = 0.0

    def initialOffset(self) -> dict[str, Any]:
        return {"number": 0, "warm_ups": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._settings.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not start["warm_ups"]:
            # A location is receiving after this batch, however many rows wait for it.
            self._warm_at = time.monotonic() + _WARM_SECONDS
            return {**start, "warm_ups": 1}
        after = int(start["number"])
        max_rows = None if isinstance(limit, ReadAllAvailable) else self._settings.max_rows
        try:
            number = self._query(lambda connection: self._next(connection, after, max_rows))
        except Unavailable:
            # The MessageBox is away, so nothing can be claimed or published. The stream asks again in a moment.
            return start
        if number == after and time.monotonic() < self._warm_at:
            return start
        self._warm_at = time.monotonic() + _WARM_SECONDS
        return {"number": number, "warm_ups": start["warm_ups"] + (number == after)}

    def _find_last_number(self, connection: Connection, after: int, limit: int | None) -> int:
        return find_last_number(connection, self._settings.location_id, after, limit)

    def _next(self, connection: Connection, after: int, limit: int | None) -> int:
        """Return the end of the next batch. While many rows come, batches are less frequent. While the host is
        throttled, they are smaller, too."""
        if self._is_busy and time.monotonic() < self._batch_at + _BUSY_SECONDS:
            return after
        number = self._find_last_number(connection, after, limit)
        if number == after or self._throttle is None:
            return number
        throttle = self._throttle.current(connection, self._settings.location_id)
        if throttle is not None:
            if time.monotonic() < self._batch_at + throttle.delay:
                return after
            number = self._find_last_number(connection, after, throttle.rows(self._settings.max_rows))
        self._batch_at = time.monotonic()
        return number

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after, last = int(start["number"]), int(end["number"])
        settings = self._settings
        rows = self._query(lambda connection: read_numbered(connection, settings.location_id, after, last))
        self._is_busy = _BUSY_ROWS <= len(rows) < settings.max_rows
        shares = balance(rows, self._count_tasks(rows))
        if not shares and start["warm_ups"] != end["warm_ups"]:
            shares = [[]] * settings.partitions
        return [RowsPartition(share) for share in shares]

    def _count_tasks(self, rows: Sequence[IntakeRow]) -> int:
        """Return the number of tasks for these rows. Now and then all workers get rows, so that Spark ends none."""
        now = time.monotonic()
        is_small = len(rows) < _FEW_ROWS and all(row.size <= _SMALL_ROW for row in rows)
        if is_small and now < self._all_workers_at + _WARM_SECONDS:
            return 1
        self._all_workers_at = now
        return self._settings.partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowsPartition)
        return _load_task(self._task)(partition.rows)

    def stop(self) -> None:
        self._connection.close()

    def _query(self, query: Callable[[Connection], T]) -> T:
        """Run a query, a second time over a new connection if the first one is broken."""
        try:
            return query(self._connection.get())
        except Unavailable:
            self._connection.close()
        return query(self._connection.get())


@lru_cache(maxsize=64)
def _load_task(pickled: bytes) -> TaskFunction:
    """Return a pickled task. A worker keeps it from one batch to the next, with the definitions that it has parsed. A
    changed location is another task."""
    task: TaskFunction = pickle.loads(pickled)
    return task


def balance(rows: Sequence[IntakeRow], parts: int) -> list[list[IntakeRow]]:
    """Split rows into at most ``parts`` shares of about equal cost, each in the order of the numbers. None is empty."""
    shares: list[list[int]] = [[] for _ in range(min(parts, len(rows)))]
    loads = [(0, number) for number in range(len(shares))]
    # The largest row first, each to the smallest share: at most a third worse than the optimum.
    for index in sorted(range(len(rows)), key=lambda index: -rows[index].size):
        load, number = heapq.heappop(loads)
        shares[number].append(index)
        heapq.heappush(loads, (load + rows[index].size + _ROW_COST, number))
    return [[rows[index] for index in sorted(share)] for share in shares]
