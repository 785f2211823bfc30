"""Write a batch into a table by JDBC: the tasks stage the rows, and the driver merges them by message id.

| step | after a crash during the step | if the step runs twice |
|---|---|---|
| prepare the table | it exists, or not | it is not changed |
| create the staging table of this attempt | an empty table that the next attempt drops | it is created again |
| stage the rows | rows that no statement reads | the rows of a task are staged twice, and merged once |
| merge the rows | the table has all of them or none | existing rows stay |
| drop the staging tables of the batch | the next attempt drops them | they were dropped before |
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from postroom.adapters import SparkTable
from postroom.errors import DeliveryRefused
from postroom.messagebox.connection import Connection
from postroom.messagebox.streams.sink_batches import SinkBatch
from postroom.spark.sinks.jdbc import SEQ, TASK, Database, JdbcTable, RowsRejected, StatementFailed, Target
from postroom.spark.sinks.task import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_STAGING_FIELDS = (pa.field(TASK, pa.int64()), pa.field(SEQ, pa.int64()))


@dataclass(frozen=True, kw_only=True)
class StagingTask:
    """The function that Spark runs on the ranges of a batch. Its rows contain the number of the task."""

    task: SinkTask

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.task.rows.schema, *_STAGING_FIELDS])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.taskAttemptId()
        for _, (rows, seqs) in self.task.read_chunks(batches):
            columns = [pa.array([number] * len(seqs), pa.int64()), pa.array(seqs, pa.int64())]
            yield pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=self.schema)


class StagedMerge:
    """Writes batches into a table by JDBC."""

    def __init__(self, session: SparkSession, sink: SparkTable) -> None:
        self._sink = sink
        self._jdbc = JdbcTable(session, sink.url, sink.writer_options)

    def write(self, rows: DataFrame, batch: SinkBatch, task: SinkTask) -> None:
        """Stage and merge the rows of a StagingTask."""
        rows = _to_table_columns(rows)
        prefix = f"postroom_{batch.batch_id.hex}_"
        staging = re.sub(r"[^.]+$", f"{prefix}{batch.attempt}", self._sink.table)
        with self._jdbc.connect() as database:
            target = database.prepare(self._sink.table, rows.drop(TASK, SEQ).schema)
            database.create_staging(staging, rows.schema)
        options = {**self._sink.writer_options, "url": self._sink.url, "dbtable": staging}
        try:
            rows.write.format("jdbc").options(**options).mode("append").save()
            # A new connection: one that was idle while the tasks wrote may be closed.
            with self._jdbc.connect() as database:
                self._merge(database, target, staging, task)
                self._drop_staging(database, prefix, batch.attempt)
        except Exception:
            with suppress(Exception), self._jdbc.connect() as database:
                database.drop_staging(prefix, self._sink.table, up_to=batch.attempt)
            raise

    def _merge(self, database: Database, target: Target, staging: str, task: SinkTask) -> None:
        try:
            database.merge(target, staging, None)
        except RowsRejected:
            with task.login.connect("sink") as connection:
                self._merge_some(database, target, staging, database.read_staged(staging), task, connection)

    def _merge_some(
        self, database: Database, target: Target, staging: str, seqs: list[int], task: SinkTask, connection: Connection
    ) -> None:
        """Merge the rows that the table accepts. Find the others by bisection, and suspend or route their messages."""
        if not seqs:
            return
        try:
            database.merge(target, staging, (seqs[0], seqs[-1]))
        except RowsRejected as error:
            if len(seqs) == 1:
                refusal = DeliveryRefused(
                    f"The table {self._sink.table} rejects the row.",
                    why=str(error),
                    hint="Correct the message or the table, and resume the instance.",
                )
                task.refuse(connection, seqs[0], refusal)
                return
            half = len(seqs) // 2
            self._merge_some(database, target, staging, seqs[:half], task, connection)
            self._merge_some(database, target, staging, seqs[half:], task, connection)

    def _drop_staging(self, database: Database, prefix: str, attempt: int) -> None:
        """Drop the staging tables. All rows are merged, so a failure is only logged."""
        try:
            database.drop_staging(prefix, self._sink.table, up_to=attempt)
        except StatementFailed as error:
            _log.warning("the staging tables %s… could not be dropped: %s", prefix, error)


def _to_table_columns(rows: DataFrame) -> DataFrame:
    """Convert columns to types that tables have. Lists and structures become JSON, and times are in UTC."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    columns = []
    for field in rows.schema:
        column = functions.col(f"`{field.name}`")
        if isinstance(field.dataType, ArrayType | MapType | StructType):
            column = functions.to_json(column)
        elif isinstance(field.dataType, TimestampType):
            column = column.cast("timestamp_ntz")
        columns.append(column.alias(field.name))
    return rows.select(*columns)
