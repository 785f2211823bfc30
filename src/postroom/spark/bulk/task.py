"""What a task does with the rows of a split: publish them, a chunk at a time. Runs in a worker of Spark.

It may run again after any interruption, in a task of its own or beside one that was given up. Receipts
say which rows of a split are published; an attempt goes on after them, however its batches are cut.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from postroom.adapters import SparkReader
from postroom.agent.identity import unit_for_split
from postroom.agent.publish import read_progress
from postroom.agent.receiving.row_units import ReceivedRows, RowUnit, receive_rows
from postroom.message import Context
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.properties import Property
from postroom.spark.bulk.reading import FILE, LENGTH, START, rows_pipeline, rows_reader
from postroom.spark.bulk.undecoded import TextEncoding, with_undecoded
from postroom.spark.executor import drop_executor, executor_for, pace_of
from postroom.spark.intake import file_claims
from postroom.spark.login import Login
from postroom.system_properties import BTS
from postroom.system_properties import FILE as FILE_PROPERTIES

#: A task's rows: what became of a unit of rows. ``stopped`` says that it had too many bad ones to go on, ``unfinished``
#: that it has to come again.
TALLY_SCHEMA = (
    "interchange_id string, rows long, bad long, published long, suspended long, routed long, stopped boolean,"
    " unfinished boolean"
)
_TALLY = pa.schema(
    [
        ("interchange_id", pa.string()),
        *((name, pa.int64()) for name in ("rows", "bad", "published", "suspended", "routed")),
        ("stopped", pa.bool_()),
        ("unfinished", pa.bool_()),
    ]
)

#: How bad rows are labelled, by the format that they are lines or elements of.
_BAD_CONTENT_TYPES = {"csv": "text/csv", "json": "application/json", "xml": "application/xml"}
#: A share says nothing of a few rows.
_SHARE_FROM = 1_000

#: Where in its file the split starts that a row was in; its number counts from there.
SPLIT_START = Property("Postroom.SplitStart", int)


@dataclass(frozen=True, kw_only=True)
class Split:
    """A split of a claimed file, with its rows as they come."""

    interchange_id: uuid.UUID
    start: int
    length: int
    batches: Iterator[pa.RecordBatch] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class BulkTask:
    """The function that Spark runs on the rows of some files, a split a task; pickled once per job."""

    login: Login
    location: ReceiveLocation
    origins: Mapping[uuid.UUID, str] = field(repr=False)
    """Where each file was picked up, by its interchange id."""
    paths: Mapping[uuid.UUID, Path] = field(default_factory=dict, repr=False)
    """Where each file is now."""
    encoding: TextEncoding | None = None
    """How their text is read, if it is."""
    paced: bool = True
    """Whether it slows down while too much waits in the MessageBox."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for split in splits_of(batches):
            received = self.receive(split)
            yield tally(str(split.interchange_id), received)
            if received.stopped or received.unfinished:
                # What is left of the rows is not even read.
                return

    def receive(self, split: Split) -> ReceivedRows:
        """Publishes what of a split is not published yet. Raises if the MessageBox does not answer."""
        executor = executor_for(self.login)
        unit_id = unit_for_split(split.interchange_id, split.start)
        try:
            progress = read_progress(executor.connection, [unit_id])[unit_id]
            if progress.done:
                return ReceivedRows(unit_id=unit_id)
            if not self._begin(executor.connection, unit_id, split):
                return ReceivedRows(unit_id=unit_id, stopped=True)
            context = (
                Context()
                .write(BTS.InterchangeID, str(split.interchange_id))
                .write(FILE_PROPERTIES.ReceivedFileName, self.origins[split.interchange_id])
                .write(SPLIT_START, split.start)
            )
            reader = rows_reader(self.location)
            limit = FileLimit(executor.connection, reader, split.interchange_id)
            received = receive_rows(
                executor.receiver,
                self.location,
                rows_pipeline(self.location),
                RowUnit(unit_id=unit_id, context=context),
                self._checked(split),
                progress=progress,
                bad_content_type=_BAD_CONTENT_TYPES.get(reader.format, "application/octet-stream"),
                limit=limit,
                pace=pace_of(executor, self.location, paced=self.paced),
            )
            if received.stopped:
                file_claims.stop_reading(executor.connection, split.interchange_id, limit.problem)
            return received
        except BaseException:
            drop_executor(self.login)
            raise

    def _checked(self, split: Split) -> Iterator[pa.RecordBatch]:
        if self.encoding is None or split.interchange_id not in self.paths:
            return split.batches
        path = self.paths[split.interchange_id]
        return with_undecoded(self.encoding, path, split.start, split.length, split.batches)

    def _begin(self, connection: Connection, unit_id: uuid.UUID, split: Split) -> bool:
        row = connection.execute(
            "SELECT begin_split(%s, %s, %s, %s)", (unit_id, split.interchange_id, split.start, split.length)
        ).fetchone()
        return row is not None and bool(row[0])


class FileLimit:
    """How many rows of a file may be bad, in whichever of its splits they are."""

    def __init__(self, connection: Connection, reader: SparkReader, interchange_id: uuid.UUID) -> None:
        self._connection = connection
        self._reader = reader
        self._interchange_id = interchange_id
        #: Why it was not allowed to go on.
        self.problem = ""

    def allows(self, *, bad: int, rows: int) -> bool:
        row = self._connection.execute(
            "SELECT row_count, bad_rows FROM split_progress(%s)", ([self._interchange_id],)
        ).fetchone()
        known_rows, known_bad = row or (0, 0)
        bad, rows = bad + known_bad, rows + known_rows
        most, share = self._reader.bad_rows, self._reader.bad_share
        if most is not None and bad > most:
            self.problem = f"{bad:,} of {rows:,} rows are bad, and bad_rows allows {most:,}"
        elif share is not None and rows >= _SHARE_FROM and bad > share * rows:
            self.problem = f"{bad:,} of {rows:,} rows are bad, and bad_share allows {share:.2%}"
        return not self.problem


def tally(interchange_id: str, received: ReceivedRows) -> pa.RecordBatch:
    """What the driver gets to know."""
    row = {name: getattr(received, name) for name in _TALLY.names[1:]}
    return pa.RecordBatch.from_pylist([{"interchange_id": interchange_id, **row}], schema=_TALLY)


def splits_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Split]:
    """The splits that a task's rows are from, one after the other. What is not taken of one is passed over."""
    pieces = (piece for batch in batches if batch.num_rows for piece in _runs(batch))
    for (file, start, length), group in groupby(pieces, key=_split_of):
        yield Split(interchange_id=uuid.UUID(file), start=start, length=length, batches=group)


def _split_of(piece: pa.RecordBatch) -> tuple[str, int, int]:
    return piece[FILE][0].as_py(), piece[START][0].as_py(), piece[LENGTH][0].as_py()


def _runs(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch where it goes from one split to the next, which is hardly ever: empty files may share a task."""
    starts = batch[START].to_numpy()
    if starts[0] == starts[-1] and batch[FILE][0] == batch[FILE][-1]:
        yield batch
        return
    files = np.array(batch[FILE].to_pylist())
    changes = np.flatnonzero((starts[1:] != starts[:-1]) | (files[1:] != files[:-1])) + 1
    for first, end in pairwise([0, *changes.tolist(), batch.num_rows]):
        yield batch.slice(first, end - first)
