"""Parquet files that the tasks of a sink write."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroom.adapters import SparkSink
from postroom.messagebox.sinks.sink_batches import SinkBatch
from postroom.spark.sinks import file_sink
from postroom.spark.sinks.file_sink import LocalTarget, ParquetTask, find_codec
from postroom.spark.sinks.row_format import RowFormat
from postroom.spark.sinks.task import RowChunk, SinkTask

ROWS = RowFormat(columns=(), body="text")
SETTINGS = {"spark.sql.parquet.compression.codec": "gzip"}


class _Task:
    """A task whose chunks are given."""

    rows = ROWS

    def __init__(self, *chunks: Sequence[str]) -> None:
        self._chunks = chunks

    def read_chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[None, RowChunk]]:
        for bodies in self._chunks:
            columns = [pa.nulls(len(bodies), field.type) for field in ROWS.schema][:-1]
            yield None, RowChunk(pa.RecordBatch.from_arrays([*columns, pa.array(bodies)], schema=ROWS.schema), [])


def write(folder: Path, *chunks: Sequence[str]) -> list[str]:
    """Write the chunks of a task. Return the names of its files."""
    task = ParquetTask(task=cast(SinkTask, _Task(*chunks)), folder=folder, codec="snappy")
    return [name.as_py() for written in task(iter([])) for name in written["name"]]


def make_batch() -> SinkBatch:
    return SinkBatch(batch_id=uuid.uuid4(), number=1, attempt=1, sink={}, seqs=(1,), tries=(0,))


@pytest.mark.parametrize(
    ("sink", "codec"),
    [
        (SparkSink("parquet", "x"), "gzip"),
        (SparkSink("parquet", "x", options={"Compression": "ZSTD"}), "zstd"),
        (SparkSink("parquet", "x", options={"compression": "uncompressed"}), "none"),
        (SparkSink("parquet", "x", options={"compression": "lzo"}), None),
        (SparkSink("parquet", "x", options={"parquet.bloom.filter.enabled": "true"}), None),
        (SparkSink("parquet", "x", partition_by=["message_type"]), None),
        (SparkSink("orc", "x"), None),
    ],
)
def test_only_plain_parquet_files_are_written_by_the_tasks(sink: SparkSink, codec: str | None) -> None:
    assert find_codec(sink, ROWS.schema, SETTINGS) == codec


@pytest.mark.parametrize("type", [pa.list_(pa.string()), pa.struct([("a", pa.int64())]), pa.duration("us")])
def test_spark_writes_columns_of_other_types(type: Any) -> None:
    format = RowFormat(columns=(), body="none", parsed=pa.schema([("a", type)]))
    assert find_codec(SparkSink("parquet", "x"), format.schema, SETTINGS) is None


def test_a_file_has_the_rows_of_all_chunks_in_their_order(tmp_path: Path) -> None:
    [name] = write(tmp_path, ["a"], [], ["b", "c"])
    file = pq.ParquetFile(tmp_path / name)
    assert file.read()["body"].to_pylist() == ["a", "b", "c"]
    assert file.num_row_groups == 1


def test_a_task_with_a_range_writes_a_file_even_if_every_message_was_removed(tmp_path: Path) -> None:
    [name] = write(tmp_path, [])
    assert pq.read_table(tmp_path / name).num_rows == 0
    assert write(tmp_path) == []


def test_many_rows_are_written_in_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sink, "_ROW_GROUP_BYTES", 1_000)
    [name] = write(tmp_path, ["a" * 600], ["b" * 600], ["c"])
    file = pq.ParquetFile(tmp_path / name)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [2, 1]


def test_only_files_of_successful_tasks_are_published(tmp_path: Path) -> None:
    """One run of the task failed after it had written its file, and one is still writing."""
    target, batch = LocalTarget(str(tmp_path)), make_batch()
    folder = target.create_task_folder(batch)
    write(folder, ["a"])
    [good] = write(folder, ["a"])
    with pq.ParquetWriter(folder / "part-late.parquet", ROWS.schema):
        target.stage(batch, [good])
        target.publish(batch)
    [published] = tmp_path.glob("batch=*/*")
    assert published.name == good


def test_a_late_run_of_a_task_cannot_add_a_file(tmp_path: Path) -> None:
    target, batch = LocalTarget(str(tmp_path)), make_batch()
    folder = target.create_task_folder(batch)
    target.stage(batch, write(folder, ["a"]))
    target.publish(batch)
    with pytest.raises(FileNotFoundError):
        write(folder, ["a"])
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
