"""A stream of rows from any source of Spark that has offsets: Kafka, a table of a lake, a data source of one's own.

Here Spark's checkpoint is the memory of what was read, and is kept. A micro-batch that was interrupted is replayed from
the offsets that Spark has written down, so that the same partitions bring the same rows in the same order: a unit is a
partition of a micro-batch of this stream. How the rows are read is fixed beside the checkpoint, as long as a batch is
unfinished.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import StateError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.spark.bulk.reading import Reading, row_columns, rows_pipeline, session_for
from postroom.spark.bulk.row_stream_task import RowStreamTask
from postroom.spark.bulk.stream_memory import StreamMemory
from postroom.spark.login import Login
from postroom.spark.receive.running_location import RunningLocation
from postroom.spark.receive.stream import TRIGGER, start_tallied
from postroom.spark.receive.tally import TALLY_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How to reach the source, rather than what comes of it: always as the definition says now.
_REACHING = "kafka."


@dataclass(frozen=True, kw_only=True)
class StreamFolder:
    """Where a stream keeps its checkpoint, and how its rows are read; the two belong together."""

    path: Path

    @classmethod
    def of(cls, location: ReceiveLocation, home: Path) -> StreamFolder:
        return cls(path=(home / ".postroom" / "streams" / str(location.location_id)).absolute())

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def is_between_batches(self) -> bool:
        """Whether every batch that was begun has come to its end."""
        return _newest(self.checkpoint / "offsets") == _newest(self.checkpoint / "commits")

    def settle(self, wanted: Reading) -> Reading:
        """How the stream is to be read: as it was begun if a batch is unfinished, else as it is wanted now."""
        file = self.path / "reading.json"
        if file.exists() and not self.is_between_batches:
            begun = _begun(file)
            reaching = {name: value for name, value in wanted.options.items() if name.startswith(_REACHING)}
            return replace(begun, options={**begun.options, **reaching})
        self.path.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{uuid.uuid4()}")
        # Options may hold secrets.
        with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_WRONLY, 0o600), "w") as writer:
            json.dump(wanted.stored(), writer)
            writer.flush()
            os.fsync(writer.fileno())
        unfinished.replace(file)
        return wanted


def _begun(file: Path) -> Reading:
    try:
        return Reading(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StateError(
            f"{file} cannot be read.",
            why=f"It says how the batch is to be read that was begun and not finished. {error}",
            hint="Restore it from a copy, or restart the stream: postroom location reset-stream NAME.",
        ) from error


def start_row_stream(
    session: SparkSession,
    location: ReceiveLocation,
    *,
    login: Login,
    home: Path,
    trigger: str = TRIGGER,
    once: bool = False,
) -> StreamingQuery:
    """Starts publishing the rows of a stream where it was left; ``once`` ends with what is there now. Raises StateError
    if it has begun and its checkpoint is not there.

    A stream that was interrupted in a batch and is read in another way from now on first brings that batch to its end
    in the old one, and then ends, to be started again.
    """
    from postroom.spark.session import without_pandas_warning

    folder = StreamFolder.of(location, home)
    memory = StreamMemory(login=login, location=location, folder=folder.path)
    memory.begin()
    with without_pandas_warning():
        wanted = Reading.begin(session, location, [])
        reading = folder.settle(wanted)
        location = reading.received_at(location)
        own = session_for(session, reading.settings)
        source = own.readStream.format(reading.format).options(**reading.options)
        frame = (source if reading.schema is None else source.schema(reading.schema)).load()
        rows = frame.select(*row_columns(frame, rows_pipeline(location)))
        tallies = rows.mapInArrow(RowStreamTask(login=login, location=location, paced=not once), TALLY_SCHEMA)
        ends = once or reading != wanted
        return start_tallied(
            *(tallies, location, folder.checkpoint),
            trigger=None if ends else trigger,
            begin_batch=memory.begin_batch,
        )


def _newest(log: Path) -> int:
    """The number of the newest batch in one of the logs of a checkpoint; -1 if there is none."""
    if not log.is_dir():
        return -1
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=-1)


class RunningRowStream(RunningLocation):
    """A running receive location over a stream of rows. Spark remembers where the stream was left."""

    def _start_query(self) -> StreamingQuery:
        return start_row_stream(self._session, self.location, login=self._login, home=self._home, trigger=self._trigger)
