"""Write Parquet files in the tasks, with Arrow. Spark's own writer gets every row through the JVM, which takes five
times the CPU time.

A task may run again, and twice at the same time. Each run writes a file of its own, and returns its name when the file
is complete. The driver publishes the files that the job has returned, one for each task, and no other.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from postroom.adapters import SparkSink
from postroom.spark.sinks.task import SinkTask

#: The result of a task: the name of its file.
NAMES_SCHEMA = "name string"
_NAMES = pa.schema([("name", pa.string())])

#: Rows are collected up to this size in memory. A larger file has several row groups.
_ROW_GROUP_BYTES = 32 << 20
_CODECS = frozenset({"none", "uncompressed", "snappy", "gzip", "zstd"})
_TYPES = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_date,
)


def find_codec(sink: SparkSink, schema: pa.Schema, settings: Mapping[str, str]) -> str | None:
    """Return the compression of the files of a sink, or None if Spark has to write them: for other formats, partitions,
    nested columns, and options of its writer."""
    options = {name.lower(): value for name, value in sink.writer_options.items()}
    codec = options.pop("compression", settings.get("spark.sql.parquet.compression.codec", "snappy")).lower()
    is_plain = all(any(is_type(field.type) for is_type in _TYPES) for field in schema)
    if sink.format != "parquet" or sink.partition_by or options or not is_plain or codec not in _CODECS:
        return None
    return "none" if codec == "uncompressed" else codec


@dataclass(frozen=True, kw_only=True)
class ParquetTask:
    """The function that Spark runs on the ranges of a batch. It writes a file into a folder, and yields its name."""

    task: SinkTask
    folder: Path
    codec: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chunks = self.task.read_chunks(batches)
        first = next(chunks, None)
        if first is None:
            return  # Spark had no range for this task
        name = f"part-{uuid.uuid4().hex}.parquet"
        schema = self.task.rows.schema
        # The driver has created the folder. A late run of an attempt that is over does not find it any more.
        with pq.ParquetWriter(
            self.folder / name, schema, compression=self.codec, version="2.6", store_schema=False
        ) as file:
            collected = [first[1].rows]
            for _, chunk in chunks:
                collected.append(chunk.rows)
                if sum(rows.nbytes for rows in collected) >= _ROW_GROUP_BYTES:
                    file.write_table(pa.Table.from_batches(collected, schema))
                    collected = []
            if collected:
                file.write_table(pa.Table.from_batches(collected, schema))
        yield pa.RecordBatch.from_pylist([{"name": name}], schema=_NAMES)
