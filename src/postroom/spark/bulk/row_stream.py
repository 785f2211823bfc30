"""Receive a stream of rows from any Spark source with offsets: Kafka, a Delta table, a custom data source.

Spark's checkpoint records what was read, and is kept. Spark replays an interrupted micro-batch from the offsets in the
checkpoint, so the same partitions have the same rows in the same order. A unit of rows is a partition of a micro-batch.
The read plan is stored next to the checkpoint, and is not changed while a batch is unfinished.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.adapters import Committed, Incoming, SparkReader
from postroom.agent.idempotency import unit_for_partition
from postroom.errors import StateError, format_count
from postroom.files.safe_files import replace_file
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.intake.location_lock import LocationLock
from postroom.messagebox.intake.row_streams import read_stream, start_batch, start_stream
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.numbered_receive_adapter import NumberedReceiveAdapter, Scan
from postroom.spark.bulk.read_plan import ReadPlan, clone_session, row_columns, rows_pipeline
from postroom.spark.bulk.row_stream_task import RowStreamTask
from postroom.spark.receive.running_location import RunningLocation
from postroom.spark.receive.stream import TRIGGER, start_tallied
from postroom.spark.receive.task import TALLY_SPARK_SCHEMA
from postroom.spark.session import check_format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Options that only concern the connection to the source. They are always those of the present definition.
_CONNECTION_OPTIONS = "kafka."
_log = logging.getLogger(__name__)


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
    checkpoint = StreamCheckpoint.find(location, home, login)
    checkpoint.start()
    with without_pandas_warning():
        wanted = ReadPlan.create(session, location, [])
        plan = checkpoint.choose_plan(wanted)
        location = plan.apply_to(location)
        cloned = clone_session(session, plan.settings)
        source = cloned.readStream.format(plan.format).options(**plan.read_options())
        frame = (source if plan.schema is None else source.schema(plan.schema)).load()
        rows = frame.select(*row_columns(frame, rows_pipeline(location)))
        tallies = rows.mapInArrow(RowStreamTask(login=login, location=location, paced=not once), TALLY_SPARK_SCHEMA)
        ends = once or plan != wanted
        return start_tallied(
            tallies,
            location,
            checkpoint.checkpoint,
            trigger=None if ends else trigger,
            start_batch=checkpoint.start_batch,
        )


def _read_newest(log: Path) -> int:
    """Return the number of the newest batch in a log of a checkpoint, or -1 if there is none."""
    if not log.is_dir():
        return -1
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=-1)


class _StreamLock(NumberedReceiveAdapter):
    """Locks a location, so that one process at a time reads its stream. Spark polls the source by its own offsets."""

    def __init__(self, connection: Connection, location: ReceiveLocation) -> None:
        super().__init__(connection, location)
        self._lock = LocationLock(connection, location.location_id)

    def scan(self) -> Scan:
        return Scan(active=self._lock.acquire())

    def read(self, interchange_ids: Sequence[uuid.UUID]) -> Sequence[Incoming]:
        return ()

    def clean_up(self, committed: Sequence[Committed]) -> None:
        """The checkpoint records what was read."""

    def close(self) -> None:
        self._lock.release()


class RunningRowStream(RunningLocation):
    """A running receive location over a stream of rows. The checkpoint records where the stream has stopped."""

    _starts_with_warm_up = False

    def _make_adapter(self, connection: Connection, *, makes_folder: bool = True) -> NumberedReceiveAdapter:
        return _StreamLock(connection, self.location)

    def _start_query(self) -> StreamingQuery:
        return start_row_stream(
            self._session, self.location, login=self._login, home=self._home, trigger=self._trigger, once=self._once
        )

    @property
    def takes_input(self) -> bool:
        """Return True until ``stop`` has stopped the query, which reads the stream itself."""
        return super().takes_input or self._query is not None


@dataclass(frozen=True, kw_only=True)
class StreamCheckpoint:
    """The checkpoint of the stream of one location. ``folder`` contains it and the read plan.

    A stream without its checkpoint would start where its options say, and lose rows or publish them again. So a missing
    or old checkpoint is detected before anything is read."""

    login: Login
    location: ReceiveLocation
    folder: Path

    @classmethod
    def find(cls, location: ReceiveLocation, home: Path, login: Login) -> StreamCheckpoint:
        folder = (home / ".postroom" / "streams" / str(location.location_id)).absolute()
        return cls(login=login, location=location, folder=folder)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def is_between_batches(self) -> bool:
        """Return True if every batch that was started is finished."""
        return _read_newest(self.checkpoint / "offsets") == _read_newest(self.checkpoint / "commits")

    def choose_plan(self, wanted: ReadPlan) -> ReadPlan:
        """Return the read plan: the stored one if a batch is unfinished, otherwise ``wanted``, which is stored."""
        file = self.folder / "reading.json"
        if file.exists() and not self.is_between_batches:
            stored = _read_plan(file)
            connection_options = {
                name: value for name, value in wanted.options.items() if name.startswith(_CONNECTION_OPTIONS)
            }
            return replace(stored, options={**stored.options, **connection_options})
        # Options may contain what only the reader's account should see.
        replace_file(file, json.dumps(wanted.to_stored()).encode(), mode=0o600)
        return wanted

    @property
    def checkpoint_id(self) -> uuid.UUID | None:
        """Return the id of the stream in Spark's checkpoint, or None if there is no checkpoint."""
        try:
            return uuid.UUID(json.loads((self.checkpoint / "metadata").read_text())["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"{self.checkpoint / 'metadata'} cannot be read: {error}.", why=_WHY, hint=self._hint
            ) from error

    def start(self) -> None:
        """Record the start of the stream. Raise StateError if it was started before with a checkpoint that is
        missing."""
        with self.login.connect("stream") as connection:
            known = read_stream(connection, self.location.location_id)
            if known is not None and known.reset_requested:
                self._keep_old_folder()
            elif known is not None and known.checkpoint_id != self.checkpoint_id:
                raise StateError(
                    f"The checkpoint of the stream {self.location.name} is not in {self.folder}.",
                    why=_WHY,
                    hint=self._hint,
                )
            elif known is not None:
                return
            # A checkpoint without a record: a process died between these two steps.
            start_stream(connection, self.location.location_id, self.checkpoint_id or self._create())

    def start_batch(self, batch: int, partitions: int) -> None:
        """Record the start of a batch. Raise StateError if another batch was started under this number."""
        checkpoint_id = self.checkpoint_id
        known = None
        if checkpoint_id is not None:
            units = [unit_for_partition(checkpoint_id, batch, partition) for partition in range(partitions)]
            with self.login.connect("stream") as connection:
                known = start_batch(connection, self.location.location_id, checkpoint_id, batch, units)
        if known is None:
            raise StateError(
                f"The stream of {self.location.name} runs in another process, or is being reset.",
                hint="Start it again.",
            )
        if known.batch > batch:
            raise StateError(
                f"The checkpoint of {self.location.name} is too old: it continues with batch {batch},"
                f" but batch {known.batch} was started.",
                why="The batches since then would have other rows, and rows would be lost or published twice.",
                hint=self._hint,
            )
        if known.partitions != partitions:
            raise StateError(
                f"Batch {batch} of {self.location.name} was started with"
                f" {format_count(known.partitions, 'partition')}, and is repeated with {partitions}.",
                why="Rows are identified by partition and number, so some would be lost and others published twice.",
                hint="Start the pipeline with the master and the settings of the time when the batch was started.",
            )

    @property
    def _hint(self) -> str:
        return (
            "Start it with its original home folder, or restore that checkpoint. To start again from its options:"
            f" postroom location reset-stream {self.location.name}."
        )

    def _create(self) -> uuid.UUID:
        """Create an empty checkpoint with a stream id, so that the id is known before anything is read."""
        checkpoint_id = uuid.uuid4()
        replace_file(self.checkpoint / "metadata", json.dumps({"id": str(checkpoint_id)}).encode())
        return checkpoint_id

    def _keep_old_folder(self) -> None:
        """Rename the folder of a stream that an operator resets, because it records which rows were read."""
        if self.folder.exists():
            kept = self.folder.with_name(f"{self.folder.name}.{uuid.uuid4()}")
            self.folder.rename(kept)
            _log.warning("%s is reset; its old checkpoint is in %s", self.location.name, kept)


_WHY = "Only the checkpoint records which rows were read. Without it rows would be lost, or published twice."
