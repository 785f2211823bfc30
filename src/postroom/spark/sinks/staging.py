"""A batch into a table by JDBC: tasks stage its rows, and the driver merges them by the message's id.

| step | if the process dies before its end | if it runs twice |
|---|---|---|
| prepare the table | it is there, or it is not | it is left as it is |
| make the staging table of this attempt | an empty table that the next attempt drops | it is made anew |
| stage the rows | rows that nobody looks at | a task's rows are there twice, and counted once |
| merge them | the table has all of them or none | what is there stays |
| drop the staging tables of the batch | the next attempt does | they are gone |
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
from postroom.spark.sinks.jdbc import Database, DatabaseError, JdbcTable, Target
from postroom.spark.sinks.merge import SEQ, TASK
from postroom.spark.sinks.task import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_OF_STAGING = (pa.field(TASK, pa.int64()), pa.field(SEQ, pa.int64()))


@dataclass(frozen=True, kw_only=True)
class StagingTask:
    """The function that Spark runs on the chunks of a batch: rows that say which task has made them."""

    task: SinkTask

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.task.rows.schema, *_OF_STAGING])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.taskAttemptId()
        for _, rows, messages in self.task.pieces(batches):
            columns = [pa.array([number] * len(messages), pa.int64()), pa.array([one.seq for one in messages])]
            yield pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=self.schema)


class StagedMerge:
    """Writes the batches of a table that JDBC reaches."""

    def __init__(self, session: SparkSession, sink: SparkTable) -> None:
        self._sink = sink
        self._jdbc = JdbcTable(session, sink.url, sink.options)

    def write(self, rows: DataFrame, batch: SinkBatch, task: SinkTask) -> None:
        """``rows`` are those of a StagingTask."""
        rows = _as_columns(rows)
        prefix = f"postroom_{batch.batch_id.hex}_"
        staging = re.sub(r"[^.]+$", f"{prefix}{batch.attempt}", self._sink.table)
        with self._jdbc.connected() as database:
            target = database.prepare(self._sink.table, rows.drop(TASK, SEQ).schema)
            database.make_staging(staging, rows.schema)
        options = {**self._sink.options, "url": self._sink.url, "dbtable": staging}
        try:
            rows.write.format("jdbc").options(**options).mode("append").save()
            # A connection of its own: one that is idle for as long as tasks write may be cut off.
            with self._jdbc.connected() as database:
                self._merge(database, target, staging, task)
                self._clean_up(database, prefix, batch.attempt)
        except Exception:
            with suppress(Exception), self._jdbc.connected() as database:
                database.drop_staging(prefix, self._sink.table, up_to=batch.attempt)
            raise

    def _merge(self, database: Database, target: Target, staging: str, task: SinkTask) -> None:
        try:
            database.merge(target, staging, None)
        except DatabaseError as error:
            if not error.is_about_rows:
                raise
            with task.login.connect("sink") as connection:
                self._merge_some(database, target, staging, database.staged(staging), task, connection)

    def _merge_some(
        self, database: Database, target: Target, staging: str, seqs: list[int], task: SinkTask, connection: Connection
    ) -> None:
        """Merge the rows that the table accepts. Find the others by bisection; their messages leave the batch."""
        if not seqs:
            return
        try:
            database.merge(target, staging, (seqs[0], seqs[-1]))
        except DatabaseError as error:
            if not error.is_about_rows:
                raise
            if len(seqs) == 1:
                _, messages = task.read(connection, seqs)
                refusal = DeliveryRefused(
                    f"The table {self._sink.table} refuses the row.",
                    why=str(error),
                    hint="Mend the message, or the table, and resume the instance.",
                )
                for message in messages:
                    task.suspend_or_route(connection, message, refusal)
                return
            half = len(seqs) // 2
            self._merge_some(database, target, staging, seqs[:half], task, connection)
            self._merge_some(database, target, staging, seqs[half:], task, connection)

    def _clean_up(self, database: Database, prefix: str, attempt: int) -> None:
        """Everything is merged; staging tables that cannot be dropped now are only in the way."""
        try:
            database.drop_staging(prefix, self._sink.table, up_to=attempt)
        except DatabaseError as error:
            _log.warning("a staging table %s… is left behind: %s", prefix, error)


def _as_columns(rows: DataFrame) -> DataFrame:
    """With types that tables have: lists and structures are JSON, and times are those of UTC wherever a task runs."""
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
