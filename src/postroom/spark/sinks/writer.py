"""A batch of a sink as a job of Spark: its pieces to the tasks, their rows to the writer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroom.adapters import AnySink, SparkSink, SparkTable
from postroom.errors import DefinitionError
from postroom.messagebox.streams.sink_batches import SinkBatch
from postroom.spark.session import has_died, without_pandas_warning
from postroom.spark.sinks.files import FileTarget, HadoopTarget, LocalTarget
from postroom.spark.sinks.rows import RowFormat
from postroom.spark.sinks.staging import StagedMerge, StagingTask
from postroom.spark.sinks.tables import WRITTEN_SCHEMA, Table, TableTask
from postroom.spark.sinks.task import SinkTask, chunks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEATH_SECONDS = 3.0


class SparkWriter:
    """Writes the batches of any sink with a session."""

    def __init__(self, session: SparkSession, home: Path) -> None:
        self._session = session
        self._home = home

    def target(self, sink: AnySink) -> FileTarget | None:
        """Where the directories of a sink's batches are, if it has any."""
        if not isinstance(sink, SparkSink) or not sink.is_files:
            return None
        folder = sink.target(self._home)
        return LocalTarget(folder) if sink.is_local else HadoopTarget(self._session, folder)

    def row_format(self, sink: AnySink) -> RowFormat:
        parsed = None if sink.parse is None else _arrow_schema(sink.parse)
        return RowFormat(columns=sink.columns, body=sink.body, parsed=parsed)

    def write(self, sink: AnySink, batch: SinkBatch, task: SinkTask) -> None:
        """Returns when every row is written: to where it stays, or (files) to where it can be published from."""
        with without_pandas_warning():
            if isinstance(sink, SparkTable):
                self._write_table(sink, batch, task)
            else:
                self._write_rows(sink, batch, task)

    def has_died(self) -> bool:
        """Is Spark gone, so that nothing that it said counts?"""
        return has_died(self._session, within=_DEATH_SECONDS)

    def _write_table(self, sink: SparkTable, batch: SinkBatch, task: SinkTask) -> None:
        if sink.is_jdbc:
            staging = StagingTask(task=task)
            rows = self._chunks(batch).mapInArrow(staging, _spark_schema(staging.schema))
            StagedMerge(self._session, sink).write(rows, batch, task)
            return
        table = Table(url=sink.url, name=sink.table)
        table.prepare(task.rows.schema)
        written = self._chunks(batch).mapInArrow(TableTask(task=task, table=table), WRITTEN_SCHEMA)
        written.write.format("noop").mode("overwrite").save()

    def _write_rows(self, sink: SparkSink, batch: SinkBatch, task: SinkTask) -> None:
        rows = self._chunks(batch).mapInArrow(task, _spark_schema(task.rows.schema))
        writer = rows.write.format(sink.format).options(**sink.options)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        target = self.target(sink)
        if target is not None:
            writer.mode("overwrite").save(target.staging(batch))
        else:
            writer.mode("append").save(None if sink.path is None else sink.target(self._home))

    def _chunks(self, batch: SinkBatch) -> DataFrame:
        """One row for each piece of the batch, spread over the tasks."""
        pieces = [(piece,) for piece in chunks(batch.seqs, batch.sizes)]
        return self._session.createDataFrame(pieces, "seqs array<bigint>")


def _arrow_schema(ddl: str) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise DefinitionError(
            f"parse={ddl!r} is one type, not columns.", hint='Write "id BIGINT, total DECIMAL(12,2)".'
        )
    return to_arrow_schema(schema, timezone="UTC")


def _spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
