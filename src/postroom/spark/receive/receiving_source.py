"""A streaming source that does the task's work as it reads: what it yields is the tally.

Rows that go from a Python reader to a Python function pass through the JVM, and the two run in a worker each. So the
function runs in the reader's own worker: a batch has one Python stage and not two, and a core one worker.
"""

# Spark calls the methods by these names.
# ruff: noqa: N802

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def receiving(location_id: uuid.UUID, source: type[DataSource], task: Task, schema: str) -> type[DataSource]:
    """A source of the location's own that reads what ``source`` reads, and yields what the task makes of it: rows of
    ``schema``."""
    # The same at every start, so that the session knows one for each location.
    unique = f"{source.name()}_{location_id.hex}"
    # Pickled by itself: the processes that plan and ask have no use for it, nor for all that it imports.
    pickled = pickle.dumps(task)
    columns = schema

    # Made anew for every query, and so sent with the task in it: options are text, and a login is none of Spark's.
    class Receiving(DataSource):
        @classmethod
        def name(cls) -> str:
            return unique

        def schema(self) -> str:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return ReceivingReader(source(self.options).streamReader(schema), pickled)

    return Receiving


class ReceivingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Asks as the reader of the source asks; its tasks read, and do the task's work."""

    def __init__(self, reader: Any, task: bytes) -> None:
        self._reader = reader
        self._task = task

    def initialOffset(self) -> dict[str, Any]:
        return dict(self._reader.initialOffset())

    def getDefaultReadLimit(self) -> ReadLimit:
        limit: ReadLimit = self._reader.getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return dict(self._reader.latestOffset(start, limit))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return list(self._reader.partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: Task = pickle.loads(self._task)
        return task(iter(self._reader.read(partition)))

    def stop(self) -> None:
        self._reader.stop()
