"""The task of a bulk job: publish the rows of a split, one chunk after the other. Runs in a Spark worker.

The task may run again after any interruption, even while an abandoned attempt still runs. Receipts record which rows of
a split are published. An attempt continues after them, even if its batches have other sizes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa

from postroom.adapters import SparkReader
from postroom.agent.idempotency import unit_for_split
from postroom.agent.streaming.row_units import ReceivedRows, RowUnit, receive_rows
from postroom.message import Context
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.splits import read_row_counts, start_split
from postroom.messagebox.storage.receipts import read_progress
from postroom.pipelines.rows.batch import RowOrigin
from postroom.ports.receive_locations import ReceiveLocation
from postroom.properties import Property
from postroom.receiving.task import make_pace
from postroom.spark.bulk.read_plan import FILE, LENGTH, START, rows_pipeline, rows_reader
from postroom.spark.bulk.row_lines import RowLines, TextEncoding, mark_undecoded
from postroom.spark.worker import close_worker, get_worker
from postroom.system_properties import BTS
from postroom.system_properties import FILE as FILE_PROPERTIES

#: The rows that a task returns: the outcome of a unit of rows. ``stopped`` means that it has too many bad rows,
#: ``unfinished`` that it has to be read again.
TALLY_SPARK_SCHEMA = (
    "interchange_id string, rows long, bad long, published long, suspended long, routed long, stopped boolean,"
    " unfinished boolean"
)
_TALLY_ARROW_SCHEMA = pa.schema(
    [
        ("interchange_id", pa.string()),
        *((name, pa.int64()) for name in ("rows", "bad", "published", "suspended", "routed")),
        ("stopped", pa.bool_()),
        ("unfinished", pa.bool_()),
    ]
)

#: The content type of bad rows by the format of the file.
_BAD_CONTENT_TYPES = {"csv": "text/csv", "json": "application/json", "xml": "application/xml"}
#: The share of bad rows is checked from this many rows on.
_MIN_ROWS_FOR_SHARE = 1_000

#: The start of the split of a row in its file. The number of the row counts from there.
SPLIT_START = Property("Postroom.SplitStart", int)


@dataclass(frozen=True, kw_only=True)
class Split:
    """A split of a claimed file, with an iterator over its rows."""

    interchange_id: uuid.UUID
    start: int
    length: int
    batches: Iterator[pa.RecordBatch] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class BulkTask:
    """The function that Spark runs on the rows of a split; pickled once per job."""

    login: Login
    location: ReceiveLocation
    origins: Mapping[uuid.UUID, str] = field(repr=False)
    """The original path of each file, by interchange id."""
    paths: Mapping[uuid.UUID, Path] = field(default_factory=dict, repr=False)
    """The present path of each file."""
    encoding: TextEncoding | None = None
    """The encoding of the files; None if they are not text."""
    paced: bool = True
    """Slow down between transactions while too many messages wait in the MessageBox."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for split in read_splits(batches):
            received = self.receive(split)
            yield make_tally(str(split.interchange_id), received)
            if received.stopped or received.unfinished:
                # The remaining rows are not read.
                return

    def receive(self, split: Split) -> ReceivedRows:
        """Publish the rows of a split that are not published yet. Raise if the MessageBox does not answer."""
        worker = get_worker(self.login)
        unit_id = unit_for_split(split.interchange_id, split.start)
        try:
            progress = read_progress(worker.connection, [unit_id])[unit_id]
            if progress.done:
                return ReceivedRows(unit_id=unit_id)
            if not start_split(
                worker.connection, unit_id, split.interchange_id, start=split.start, length=split.length
            ):
                return ReceivedRows(unit_id=unit_id, stopped=True)
            context = (
                Context()
                .write(BTS.InterchangeID, str(split.interchange_id))
                .write(FILE_PROPERTIES.ReceivedFileName, self.origins[split.interchange_id])
                .write(SPLIT_START, split.start)
            )
            reader = rows_reader(self.location)
            limit = FileLimit(worker.connection, reader, split.interchange_id)
            path = self.paths.get(split.interchange_id)
            lines = None
            if self.encoding is not None and path is not None:
                lines = RowLines(self.encoding, path, split.start, split.length)
            file = PurePath(self.origins[split.interchange_id]).name
            origin = RowOrigin(file=file, start=split.start, find_line=None if lines is None else lines.find)
            received = receive_rows(
                worker.receiver,
                self.location,
                rows_pipeline(self.location),
                RowUnit(unit_id=unit_id, context=context, origin=origin),
                split.batches if lines is None else mark_undecoded(lines, split.batches),
                progress=progress,
                bad_content_type=_BAD_CONTENT_TYPES.get(reader.format, "application/octet-stream"),
                limit=limit,
                pace=make_pace(worker, self.location, paced=self.paced),
            )
            if received.stopped:
                file_claims.stop_reading(worker.connection, split.interchange_id, limit.problem)
            return received
        except BaseException:
            close_worker(self.login)
            raise


class FileLimit:
    """The limit of rows of a file that are bad or have no subscriber, over all its splits."""

    def __init__(self, connection: Connection, reader: SparkReader, interchange_id: uuid.UUID) -> None:
        self._connection = connection
        self._reader = reader
        self._interchange_id = interchange_id
        #: Why the limit is exceeded.
        self.problem = ""

    def allows(self, *, bad: int, unroutable: int, rows: int) -> bool:
        counts = read_row_counts(self._connection, [self._interchange_id])
        known_rows, known_bad = counts.get(self._interchange_id, (0, 0))
        bad, rows = bad + unroutable + known_bad, rows + known_rows
        failures = f"{bad:,} of {rows:,} rows {'is' if bad == 1 else 'are'} bad"
        failures += (" or has no subscriber" if bad == 1 else " or have no subscriber") if unroutable else ""
        max_bad, share = self._reader.bad_rows, self._reader.bad_share
        if max_bad is not None and bad > max_bad:
            self.problem = f"{failures}, and bad_rows allows {max_bad:,}"
        elif share is not None and rows >= _MIN_ROWS_FOR_SHARE and bad > share * rows:
            self.problem = f"{failures}, and bad_share allows {share:.2%}"
        return not self.problem


def make_tally(interchange_id: str, received: ReceivedRows) -> pa.RecordBatch:
    """Return the tally of a split for the driver."""
    row = {name: getattr(received, name) for name in _TALLY_ARROW_SCHEMA.names[1:]}
    return pa.RecordBatch.from_pylist([{"interchange_id": interchange_id, **row}], schema=_TALLY_ARROW_SCHEMA)


def read_splits(batches: Iterator[pa.RecordBatch]) -> Iterator[Split]:
    """Yield the splits of a task, one after the other. Rows that were not read from a split are skipped."""
    parts = (part for batch in batches if batch.num_rows for part in _divide_by_split(batch))
    for (file, start, length), group in groupby(parts, key=_read_split):
        yield Split(interchange_id=uuid.UUID(file), start=start, length=length, batches=group)


def _read_split(part: pa.RecordBatch) -> tuple[str, int, int]:
    return part[FILE][0].as_py(), part[START][0].as_py(), part[LENGTH][0].as_py()


def _divide_by_split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the parts of a batch by split. A batch rarely has more than one: tiny files may share a task."""
    starts = batch[START].to_numpy()
    if starts[0] == starts[-1] and batch[FILE][0] == batch[FILE][-1]:
        yield batch
        return
    files = np.array(batch[FILE].to_pylist())
    changes = np.flatnonzero((starts[1:] != starts[:-1]) | (files[1:] != files[:-1])) + 1
    for first, end in pairwise([0, *changes.tolist(), batch.num_rows]):
        yield batch.slice(first, end - first)
