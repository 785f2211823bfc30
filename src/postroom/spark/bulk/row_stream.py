"""Receive a stream of rows from any Spark source with offsets: Kafka, a Delta table, a custom data source.

Spark's checkpoint records what was read, and is kept. Spark replays an interrupted micro-batch from the offsets in the
checkpoint, so the same partitions have the same rows in the same order. A unit of rows is a partition of a micro-batch.
The read plan is stored next to the checkpoint, and is not changed while a batch is unfinished.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.adapters import SparkReader
from postroom.errors import StateError
from postroom.files.safe_files import replace_file
from postroom.messagebox.connection import Login
from postroom.ports.receive_locations import ReceiveLocation
from postroom.spark.bulk.read_plan import ReadPlan, clone_session, row_columns, rows_pipeline
from postroom.spark.bulk.row_stream_task import RowStreamTask
from postroom.spark.bulk.stream_checkpoint import StreamCheckpoint
from postroom.spark.receive.running_location import RunningLocation
from postroom.spark.receive.stream import TRIGGER, start_tallied
from postroom.spark.receive.task import TALLY_SPARK_SCHEMA
from postroom.spark.required_classes import check_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Options that only concern the connection to the source. They are always those of the present definition.
_CONNECTION_OPTIONS = "kafka."


@dataclass(frozen=True, kw_only=True)
class StreamFolder:
    """The folder of a stream, with its checkpoint and the read plan."""

    path: Path

    @classmethod
    def for_location(cls, location: ReceiveLocation, home: Path) -> StreamFolder:
        return cls(path=(home / ".postroom" / "streams" / str(location.location_id)).absolute())

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def is_between_batches(self) -> bool:
        """Return True if every batch that was started is finished."""
        return _read_newest(self.checkpoint / "offsets") == _read_newest(self.checkpoint / "commits")

    def choose_plan(self, wanted: ReadPlan) -> ReadPlan:
        """Return the read plan: the stored one if a batch is unfinished, otherwise ``wanted``, which is stored."""
        file = self.path / "reading.json"
        if file.exists() and not self.is_between_batches:
            stored = _read_plan(file)
            connection_options = {
                name: value for name, value in wanted.options.items() if name.startswith(_CONNECTION_OPTIONS)
            }
            return replace(stored, options={**stored.options, **connection_options})
        # Options may contain what only the reader's account should see.
        replace_file(file, json.dumps(wanted.to_stored()).encode(), mode=0o600)
        return wanted


def _read_plan(file: Path) -> ReadPlan:
    try:
        return ReadPlan(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise StateError(
            f"{file} cannot be read.",
            why=f"It is the read plan of the unfinished batch. {error}",
            hint="Restore it from a backup, or start with a new checkpoint: postroom location reset-stream NAME.",
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
    """Start a query that publishes the rows of a stream from where it stopped. With ``once`` it ends with what is there
    now. Raise StateError if the stream was started before and its checkpoint is missing.

    If the read plan has changed during an unfinished batch, the query finishes that batch with the old plan and ends.
    It has to be started again then.
    """
    from postroom.spark.session import without_pandas_warning

    assert isinstance(location.adapter, SparkReader)
    check_format(session, location.adapter.format)
    folder = StreamFolder.for_location(location, home)
    checkpoint = StreamCheckpoint(login=login, location=location, folder=folder.path)
    checkpoint.start()
    with without_pandas_warning():
        wanted = ReadPlan.create(session, location, [])
        plan = folder.choose_plan(wanted)
        location = plan.apply_to(location)
        cloned = clone_session(session, plan.settings)
        source = cloned.readStream.format(plan.format).options(**plan.read_options())
        frame = (source if plan.schema is None else source.schema(plan.schema)).load()
        rows = frame.select(*row_columns(frame, rows_pipeline(location)))
        tallies = rows.mapInArrow(RowStreamTask(login=login, location=location, paced=not once), TALLY_SPARK_SCHEMA)
        ends = once or plan != wanted
        return start_tallied(
            *(tallies, location, folder.checkpoint),
            trigger=None if ends else trigger,
            start_batch=checkpoint.start_batch,
        )


def _read_newest(log: Path) -> int:
    """Return the number of the newest batch in a log of a checkpoint, or -1 if there is none."""
    if not log.is_dir():
        return -1
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=-1)


class RunningRowStream(RunningLocation):
    """A running receive location over a stream of rows. The checkpoint records where the stream has stopped."""

    _starts_with_warm_up = False

    def _start_query(self) -> StreamingQuery:
        return start_row_stream(
            self._session, self.location, login=self._login, home=self._home, trigger=self._trigger, once=self._once
        )

    @property
    def takes_input(self) -> bool:
        """Return True until ``stop`` has stopped the query, which reads the stream itself."""
        return super().takes_input or self._query is not None
