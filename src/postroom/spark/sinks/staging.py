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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from postroom.adapters import SparkTable
from postroom.messagebox.streams.sink_batches import SinkBatch
from postroom.spark.sinks.jdbc import SEQ, TASK, Database, RowsRejected, StatementFailed, connect_jdbc
from postroom.spark.sinks.row_format import row_rejection
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
        self._connect = partial(connect_jdbc, session, sink.url, sink.writer_options)

    def write(self, rows: DataFrame, batch: SinkBatch, task: SinkTask) -> None:
        """Stage and merge the rows of a StagingTask."""
        table = self._sink.table
        rows = _to_table_columns(rows)
        prefix = f"postroom_{batch.batch_id.hex}_"
        staging = re.sub(r"[^.]+$", f"{prefix}{batch.attempt}", table)
        with self._connect() as database:
            columns = database.prepare(table, rows.drop(TASK, SEQ).schema)
            database.create_staging(staging, rows.schema)
        options = {**self._sink.writer_options, "url": self._sink.url, "dbtable": staging}
        try:
            rows.write.format("jdbc").options(**options).mode("append").save()
            # A new connection: one that was idle while the tasks wrote may be closed.
            with self._connect() as database:
                self._merge(database, columns, staging, task)
                try:
                    database.drop_staging(prefix, table, up_to=batch.attempt)
                except StatementFailed as error:  # all rows are merged
                    _log.warning("the staging tables %s… could not be dropped: %s", prefix, error)
        except Exception:
            with suppress(Exception), self._connect() as database:
                database.drop_staging(prefix, table, up_to=batch.attempt)
            raise

    def _merge(self, database: Database, columns: Mapping[str, str], staging: str, task: SinkTask) -> None:
        try:
            database.merge(self._sink.table, columns, staging, None)
            return
        except RowsRejected:
            seqs = database.read_staged(staging)

        def merge(first: int, end: int) -> None:
            try:
                database.merge(self._sink.table, columns, staging, (seqs[first], seqs[end - 1]))
            except RowsRejected as error:
                raise row_rejection(self._sink.table, str(error)) from error

        with task.login.connect("sink") as connection:
            task.write_accepted(connection, seqs, merge)


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
