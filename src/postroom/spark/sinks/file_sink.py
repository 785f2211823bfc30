"""The files of a sink: each batch is a directory that is published once, and complete or not at all.

    out/lake/batch=000000000017-3c1c…/region=EU/part-….parquet
    out/lake/_postroom/log/000000000017-3c1c….json             the published batches by number
    out/lake/_postroom/staging/                                what is being written; readers ignore it

On a local file system a batch is written to the staging folder and renamed. A second attempt finds the renamed
directory. Other file systems (s3a://, hdfs://) cannot rename a directory in one step. There each attempt writes its own
directory, and the log names the valid one.

Plain Parquet files are written by the tasks with Arrow: Spark's own writer gets every row through the JVM, which takes
five times the CPU time. A task may run again, and twice at the same time. Each run writes a file of its own, and
returns its name when the file is complete. The driver publishes the files that the job has returned, one for each task.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from postroom.adapters import SparkSink
from postroom.clock import system_clock
from postroom.errors import ClaimLost
from postroom.files.safe_files import replace_file, sync_folder
from postroom.messagebox.sinks.sink_batches import SinkBatch
from postroom.spark.sinks.task import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

PRIVATE = "_postroom"
#: The prefix of the file in a tombstone: a directory that replaces an abandoned batch.
_ABANDONED = "_abandoned_by_"
_DAY_SECONDS = 86_400.0
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


class FileSinkTarget(Protocol):
    """The target of the batches of one sink."""

    def is_published(self, batch: SinkBatch) -> bool:
        """Return True if an attempt has published the batch, even if the MessageBox does not know it."""
        ...

    def staging(self, batch: SinkBatch) -> str:
        """Return where this attempt writes. Readers ignore it."""
        ...

    def publish(self, batch: SinkBatch) -> None:
        """Publish the files of this attempt, unless an earlier attempt has published the batch."""
        ...

    def abandon(self, batch: SinkBatch) -> bool:
        """Prevent all attempts so far from publishing the batch. Return False if one of them has published it."""
        ...

    def discard(self, batch: SinkBatch) -> None:
        """Remove the files of all attempts at an abandoned batch."""
        ...


def format_name(batch: SinkBatch) -> str:
    """Return the name of a batch: its number, so that names sort, and its id, because another MessageBox has the same
    numbers."""
    return f"{batch.number:012d}-{batch.batch_id.hex}"


def log_entry(batch: SinkBatch, directory: str) -> bytes:
    """Return the log entry of a batch. It is the same at a repeated attempt."""
    entry = {"batch": format_name(batch), "number": batch.number, "directory": directory}
    return (json.dumps(entry) + "\n").encode()


class LocalTarget:
    """A folder on a file system that renames directories in one step."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def is_published(self, batch: SinkBatch) -> bool:
        final = self._final_folder(batch)
        # An empty directory is not a batch: every batch has at least one file.
        return final.is_dir() and any(final.iterdir()) and _read_abandoned_by(final) is None

    def staging(self, batch: SinkBatch) -> str:
        return str(self._private("staging") / f"{batch.batch_id.hex}-{batch.attempt}")

    def create_task_folder(self, batch: SinkBatch) -> Path:
        """Create the folder for the files of the tasks of this attempt, also of those that Spark repeats."""
        folder = Path(f"{self.staging(batch)}-tasks")
        folder.mkdir(exist_ok=True)
        return folder

    def stage(self, batch: SinkBatch, names: Sequence[str]) -> None:
        """Move the files of the successful tasks to the staging directory. A task that still runs cannot add one."""
        staging = Path(self.staging(batch))
        staging.mkdir()
        for name in names:
            Path(f"{staging}-tasks", name).rename(staging / name)

    def publish(self, batch: SinkBatch) -> None:
        final = self._final_folder(batch)
        if not self.is_published(batch):
            written = Path(self.staging(batch))
            _sync(written)
            self._remove_tombstone(batch)
            # Fails if a late attempt was faster: a directory that is not empty is never replaced.
            written.rename(final)
        sync_folder(self._folder)
        self._log(batch, final.name)
        self.discard(batch)
        self._remove_old_tombstones()

    def abandon(self, batch: SinkBatch) -> bool:
        """Put a tombstone into the place of the batch. Readers ignore it, and no attempt can be renamed onto it."""
        final = self._final_folder(batch)
        try:
            (self._private("abandoned") / final.name).touch()
            tombstone = self._private("staging") / f"{batch.batch_id.hex}-{batch.attempt}-tombstone"
            tombstone.mkdir(exist_ok=True)
            (tombstone / f"{_ABANDONED}{batch.attempt:06d}").touch()
            _sync(tombstone)
            with suppress(OSError):  # a batch or an earlier tombstone exists
                tombstone.rename(final)
            if _read_abandoned_by(final) is not None:
                (final / f"{_ABANDONED}{batch.attempt:06d}").touch()
        except OSError as error:
            _log.warning("the tombstone of batch %d cannot be written: %s", batch.number, error)
        return not self.is_published(batch)

    def discard(self, batch: SinkBatch) -> None:
        for left_over in self._private("staging").glob(f"{batch.batch_id.hex}-*"):
            shutil.rmtree(left_over, ignore_errors=True)

    def _remove_tombstone(self, batch: SinkBatch) -> None:
        """Remove the tombstone of an earlier attempt that died before the MessageBox knew that it was abandoned."""
        final = self._final_folder(batch)
        abandoned_by = _read_abandoned_by(final)
        if abandoned_by is None:
            return
        if abandoned_by >= batch.attempt:
            raise ClaimLost(f"Batch {batch.number} was abandoned by another process.")
        final.rename(self._private("staging") / f"{batch.batch_id.hex}-{batch.attempt}-removed")

    def _remove_old_tombstones(self) -> None:
        """Remove the tombstones after a day. No late attempt is left by then."""
        for entry in self._private("abandoned").iterdir():
            if system_clock().timestamp() - entry.stat().st_mtime < _DAY_SECONDS:
                continue
            final = self._folder / entry.name
            if _read_abandoned_by(final) is not None:
                gone = self._private("staging") / f"{entry.name}-expired"
                final.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
            entry.unlink(missing_ok=True)

    def _final_folder(self, batch: SinkBatch) -> Path:
        return self._folder / f"batch={format_name(batch)}"

    def _private(self, name: str) -> Path:
        folder = self._folder / PRIVATE / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _log(self, batch: SinkBatch, directory: str) -> None:
        replace_file(self._private("log") / f"{format_name(batch)}.json", log_entry(batch, directory))


class HadoopTarget:
    """A folder on a file system of Hadoop. The log names the valid directories."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        self._session = session
        self._uri = uri

    def is_published(self, batch: SinkBatch) -> bool:
        path, system = self._open(self._entry(batch))
        if not system.exists(path):
            return False
        # An entry that a crash cut short is not valid: its last character is missing. A store that encrypts or pads
        # files returns another length, so the entry has to be read there.
        if system.getFileStatus(path).getLen() == len(self._line(batch)):
            return True
        return _is_complete(self._read(path, system), batch)

    def staging(self, batch: SinkBatch) -> str:
        return f"{self._uri}/{self._directory(batch)}"

    def publish(self, batch: SinkBatch) -> None:
        if self.is_published(batch):
            return
        self._write_entry(batch)
        self._remove(batch, range(1, batch.attempt))

    def abandon(self, batch: SinkBatch) -> bool:
        # A late attempt could still be logged in the moment before the MessageBox knows.
        return not self.is_published(batch)

    def discard(self, batch: SinkBatch) -> None:
        self._remove(batch, range(1, batch.attempt + 1))

    def _write_entry(self, batch: SinkBatch) -> None:
        path, system = self._open(self._entry(batch))
        # Overwrite it only if it was cut short: of two attempts at the same time only one can be logged.
        stream = system.create(path, bool(system.exists(path)))
        try:
            stream.write(bytearray(self._line(batch)))
        finally:
            stream.close()

    def _read(self, path: Any, system: Any) -> bytes:
        from py4j.java_gateway import is_instance_of
        from py4j.protocol import Py4JJavaError

        stream = system.open(path)
        try:
            return bytes(stream.readAllBytes())
        except Py4JJavaError as error:
            name = "org.apache.hadoop.fs.ChecksumException"
            if not is_instance_of(self._session._sc._gateway, error.java_exception, name):
                raise
            return b""  # its end is missing
        finally:
            stream.close()

    def _remove(self, batch: SinkBatch, attempts: range) -> None:
        """Remove the directories of lost attempts. Readers ignore them, but they need space."""
        for attempt in attempts:
            path, system = self._open(f"{self._uri}/{self._directory(replace(batch, attempt=attempt))}")
            system.delete(path, True)

    def _line(self, batch: SinkBatch) -> bytes:
        return log_entry(batch, self._directory(batch))

    def _directory(self, batch: SinkBatch) -> str:
        # The length does not depend on the attempt.
        return f"batch={format_name(batch)}-{batch.attempt:06d}"

    def _entry(self, batch: SinkBatch) -> str:
        return f"{self._uri}/{PRIVATE}/log/{format_name(batch)}.json"

    def _open(self, uri: str) -> tuple[Any, Any]:
        jvm: Any = self._session._jvm
        path = jvm.org.apache.hadoop.fs.Path(uri)
        return path, path.getFileSystem(self._session._jsc.hadoopConfiguration())


def _is_complete(entry: bytes, batch: SinkBatch) -> bool:
    """Return True if this is a complete log entry of the batch, of any attempt."""
    try:
        fields = json.loads(entry)
        return entry.endswith(b"\n") and bool(fields["batch"] == format_name(batch))
    except (ValueError, TypeError, KeyError):
        return False


def _read_abandoned_by(final: Path) -> int | None:
    """Return the last attempt that abandoned the batch, or None if this is not a tombstone."""
    return max((int(file.name.removeprefix(_ABANDONED)) for file in final.glob(f"{_ABANDONED}*")), default=None)


def _sync(folder: Path) -> None:
    """Write a directory to disk, files before the directories that contain them."""
    for entry in folder.iterdir():
        if entry.is_dir():
            _sync(entry)
        else:
            with entry.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)


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
