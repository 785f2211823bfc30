"""Sinks without Spark: the tasks run in this process, and Arrow writes the files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from postroom.adapters import SinkDefinition, SparkSink, SparkTable
from postroom.errors import PostroomError
from postroom.message import Message
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.sinks.sink_batches import SinkBatch
from postroom.spark.sinks.drain import Drain
from postroom.spark.sinks.file_sink import LocalTarget, ParquetTask
from postroom.spark.sinks.postgres_table import Table, TableTask
from postroom.spark.sinks.row_format import RowFormat
from postroom.spark.sinks.running_sinks import Sinks
from postroom.spark.sinks.task import SinkTask, split_into_ranges
from tests.support.box import Box, Region
from tests.support.waiting import wait_until


class Killed(BaseException):
    """Simulates the death of the process: no code catches it."""


class InProcessWriter:
    """A writer whose tasks run in this process, one after the other. ``at`` is called with the name of each step."""

    def __init__(self, home: Path, at: Callable[[str], None] = lambda step: None) -> None:
        self._home = home
        self._at = at

    def target(self, sink: SinkDefinition) -> LocalTarget | None:
        if not isinstance(sink, SparkSink) or not sink.is_files:
            return None
        return _ReportingTarget(sink.target(self._home), self._at)

    def row_format(self, sink: SinkDefinition) -> RowFormat:
        return RowFormat(columns=sink.columns, body=sink.body)

    def check(self, sink: SinkDefinition) -> None:
        pass  # it needs no jars

    def write(self, sink: SinkDefinition, batch: SinkBatch, task: SinkTask) -> None:
        self._at("begin")
        ranges = [seqs._asdict() for seqs in split_into_ranges(batch.seqs)]
        batches = [pa.RecordBatch.from_pylist(ranges)]
        if isinstance(sink, SparkTable):
            table = Table(url=sink.url, name=sink.table)
            table.prepare(task.rows.schema)
            list(TableTask(task=task, table=table)(iter(batches)))
        else:
            assert isinstance(sink, SparkSink)
            self._write_files(sink, batch, task, batches)
        self._at("written")

    def _write_files(self, sink: SparkSink, batch: SinkBatch, task: SinkTask, batches: list[pa.RecordBatch]) -> None:
        if (target := self.target(sink)) is not None and not sink.partition_by:
            files = ParquetTask(task=task, folder=target.create_task_folder(batch), codec="snappy")
            target.stage(batch, [name.as_py() for written in files(iter(batches)) for name in written["name"]])
        else:
            rows = list(task(iter(batches)))
            folder = target.staging(batch) if target else sink.target(self._home)
            ds.write_dataset(
                rows,
                folder,
                schema=task.rows.schema,
                format="parquet",
                partitioning=list(sink.partition_by),
                partitioning_flavor="hive",
                basename_template=f"{batch.batch_id.hex}-{batch.attempt}-{{i}}.parquet",
                existing_data_behavior="overwrite_or_ignore",
            )

    def has_died(self) -> bool:
        return False


class _ReportingTarget(LocalTarget):
    def __init__(self, folder: str, at: Callable[[str], None]) -> None:
        super().__init__(folder)
        self._at = at

    def publish(self, batch: SinkBatch) -> None:
        super().publish(batch)
        self._at("published")


def add_sink(
    box: Box, sink: SinkDefinition, *, name: str = "Lake", filter: str = "exists(Orders.Region)", **port: object
) -> None:
    box.add_port(name, filter, adapter=sink.model_dump(mode="json"), **port)  # type: ignore[arg-type]


def publish(box: Box, *bodies: bytes, region: str = "EU") -> list[str]:
    """Publish messages for the sink. Return their ids."""
    published = box.agent().publish([Message.of(body, promoted={Region: region}) for body in bodies])
    return [str(message.message_id) for message in published]


def make_drain(box: Box, home: Path, at: Callable[[str], None] = lambda step: None) -> Drain:
    login = Login(url=box.url, user=box.host().role_name)
    return Drain(InProcessWriter(home, at), box.host(), login=login, home=home)


def read_port_id(box: Box, name: str = "Lake") -> uuid.UUID:
    port: uuid.UUID = box.one("SELECT id FROM send_ports WHERE name = %s", name)
    return port


def drain_batch(drain: Drain, box: Box, port_id: uuid.UUID | None = None) -> int | None:
    """Write the next batch. Return the number of written messages, or None if no message waited."""
    drained = drain.drain_once(box.connection, port_id or read_port_id(box))
    return None if drained is None else drained.written


def drain_waiting(drain: Drain, connection: Connection, port_id: uuid.UUID) -> int:
    """Write batches until no message waits, or one batch fails. Return the number of written messages."""
    written = 0
    with drain.open_completion() as completion:
        while (drained := drain.drain_once(connection, port_id, completion)) is not None:
            written += drained.written
            if drained.failure is not None and not drained.searching:
                break
    return written


def drain_sinks(sinks: Sinks, connection: Connection) -> list[PostroomError]:
    """Drain the sinks of a single run. Return the problems."""
    wait_until(lambda: sinks.check(connection), what="the end of all sinks")
    return list(sinks.problems.values())


def read_lake(folder: Path) -> list[dict[str, object]]:
    """Return the rows that a reader of the folder finds. Readers ignore names that start with an underscore."""
    files: Sequence[str] = [
        str(file)
        for file in sorted(folder.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
    ]
    if not files:
        return []
    rows: list[dict[str, object]] = ds.dataset(files, format="parquet", partitioning="hive").to_table().to_pylist()
    return rows
