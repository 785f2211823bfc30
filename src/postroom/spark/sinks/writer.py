"""Write a batch of a sink with a Spark job: the tasks get ranges of its messages, and their rows go to the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroom.adapters import SinkDefinition, SparkSink, SparkTable
from postroom.errors import DefinitionError
from postroom.messagebox.sinks.sink_batches import SinkBatch
from postroom.spark.session import check_driver, check_format, has_died, without_pandas_warning
from postroom.spark.sinks.file_sink import (
    NAMES_SCHEMA,
    FileSinkTarget,
    HadoopTarget,
    LocalTarget,
    ParquetTask,
    find_codec,
)
from postroom.spark.sinks.jdbc import StagedMerge, StagingTask
from postroom.spark.sinks.postgres_table import WRITTEN_SCHEMA, Table, TableTask
from postroom.spark.sinks.row_format import RowFormat
from postroom.spark.sinks.task import SinkTask, split_into_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEATH_SECONDS = 3.0


class SparkWriter:
    """Writes the batches of every kind of sink with a Spark session."""

    def __init__(self, session: SparkSession, home: Path) -> None:
        self._session = session
        self._home = home

    def target(self, sink: SinkDefinition) -> FileSinkTarget | None:
        """Return where the directories of the batches are, or None if the sink does not write files."""
        if not isinstance(sink, SparkSink) or not sink.is_files:
            return None
        folder = sink.target(self._home)
        return LocalTarget(folder) if sink.is_local else HadoopTarget(self._session, folder)

    def row_format(self, sink: SinkDefinition) -> RowFormat:
        parsed = None if sink.parse is None else _to_arrow_schema(sink.parse)
        return RowFormat(columns=sink.columns, body=sink.body, parsed=parsed)

    def write(self, sink: SinkDefinition, batch: SinkBatch, task: SinkTask) -> None:
        """Write all rows of a batch to their target, or (files) to the staging directory of the batch."""
        with without_pandas_warning():
            if isinstance(sink, SparkTable):
                self._write_table(sink, batch, task)
            else:
                assert isinstance(sink, SparkSink)
                self._write_rows(sink, batch, task)

    def check(self, sink: SinkDefinition) -> None:
        """Raise StateError if Spark lacks the jar of the sink's format or of its JDBC driver."""
        if isinstance(sink, SparkSink) and not sink.is_files:
            check_format(self._session, sink.format)
        if sink.jdbc_driver is not None:
            check_driver(self._session, sink.jdbc_driver)

    def has_died(self) -> bool:
        """Return True if Spark has died, so that its errors are not those of the batch."""
        return has_died(self._session, within=_DEATH_SECONDS)

    def _write_table(self, sink: SparkTable, batch: SinkBatch, task: SinkTask) -> None:
        if sink.is_jdbc:
            staging = StagingTask(task=task)
            rows = self._ranges(batch).mapInArrow(staging, _to_spark_schema(staging.schema))
            StagedMerge(self._session, sink).write(rows, batch, task)
            return
        table = Table(url=sink.url, name=sink.table, settings=sink.writer_options)
        table.prepare(task.rows.schema)
        written = self._ranges(batch).mapInArrow(TableTask(task=task, table=table), WRITTEN_SCHEMA)
        written.write.format("noop").mode("overwrite").save()

    def _write_rows(self, sink: SparkSink, batch: SinkBatch, task: SinkTask) -> None:
        target = self.target(sink)
        codec = find_codec(sink, task.rows.schema, self._session.conf.getAll)
        if isinstance(target, LocalTarget) and codec is not None:
            files = ParquetTask(task=task, folder=target.create_task_folder(batch), codec=codec)
            written = self._ranges(batch).mapInArrow(files, NAMES_SCHEMA).collect()
            target.stage(batch, [row.name for row in written])
            return
        rows = self._ranges(batch).mapInArrow(task, _to_spark_schema(task.rows.schema))
        writer = rows.write.format(sink.format).options(**sink.writer_options)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if target is not None:
            writer.mode("overwrite").save(target.staging(batch))
        else:
            writer.mode("append").save(None if sink.path is None else sink.target(self._home))

    def _ranges(self, batch: SinkBatch) -> DataFrame:
        """Return one row for each range of the batch. Spark distributes them to the tasks.

        They are an Arrow table: Spark reads a Python list with Python workers of its own."""
        firsts, lasts = zip(*split_into_ranges(batch.seqs), strict=True)
        return self._session.createDataFrame(pa.table({"first": firsts, "last": lasts}))


def _to_arrow_schema(ddl: str) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise DefinitionError(
            f"parse={ddl!r} is a type, not a list of columns.", hint='Write "id BIGINT, total DECIMAL(12,2)".'
        )
    return to_arrow_schema(schema, timezone="UTC")


def _to_spark_schema(schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
