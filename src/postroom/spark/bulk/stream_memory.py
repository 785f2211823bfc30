"""What is remembered of a stream of rows: Spark's checkpoint, in a folder, and in the MessageBox which one that is.

Only the checkpoint knows which rows were read. A stream without one begins where its options say, and loses rows or
publishes them again; so that a checkpoint that is not there any more has to be noticed.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from postroom.agent.identity import unit_for_partition
from postroom.errors import StateError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.streams.row_streams import read_stream, start_batch, start_stream
from postroom.spark.login import Login

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StreamMemory:
    """The memory of the stream of one location; ``folder`` is where its checkpoint is, or will be."""

    login: Login
    location: ReceiveLocation
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def checkpoint_id(self) -> uuid.UUID | None:
        """The id that Spark gave the stream, and gives it again as long as the checkpoint is there."""
        try:
            return uuid.UUID(json.loads((self.checkpoint / "metadata").read_text())["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"{self.checkpoint / 'metadata'} cannot be read: {error}.", why=_WHY, hint=self._hint
            ) from error

    def begin(self) -> None:
        """Before the stream is started. Raises StateError if it has begun with a checkpoint that is not here."""
        with self.login.connect("stream") as connection:
            known = read_stream(connection, self.location.location_id)
            if known is not None and known.restart_requested:
                self._put_aside()
            elif known is not None and known.checkpoint_id != self.checkpoint_id:
                raise StateError(
                    f"The stream of {self.location.name} has begun, and its checkpoint is not in {self.folder}.",
                    why=_WHY,
                    hint=self._hint,
                )
            elif known is not None:
                return
            # A checkpoint without a record is from before there were any, or a process died between these two steps.
            start_stream(connection, self.location.location_id, self.checkpoint_id or self._make())

    def begin_batch(self, batch: int, partitions: int) -> None:
        """Before any of its rows is read. Raises StateError if it is not the batch that was begun under its number."""
        checkpoint_id = self.checkpoint_id
        known = None
        if checkpoint_id is not None:
            units = [unit_for_partition(checkpoint_id, batch, partition) for partition in range(partitions)]
            with self.login.connect("stream") as connection:
                known = start_batch(connection, self.location.location_id, checkpoint_id, batch, units)
        if known is None:
            raise StateError(
                f"The stream of {self.location.name} runs in another place, or is restarted.",
                hint="It has to be started again.",
            )
        if known.batch > batch:
            raise StateError(
                f"The checkpoint of {self.location.name} is too old: it goes on with batch {batch},"
                f" and {known.batch} was begun.",
                why="The batches since then would be cut otherwise; rows would be lost, or published twice.",
                hint=self._hint,
            )
        if known.partitions != partitions:
            raise StateError(
                f"Batch {batch} of {self.location.name} was begun in {known.partitions} partitions,"
                f" and comes again in {partitions}.",
                why="Its rows are told apart by partition and number: some would be lost, others published twice.",
                hint="Start the pipeline with the master and the settings that the batch was begun with.",
            )

    @property
    def _hint(self) -> str:
        return (
            "Start it with its original home folder, or restore that checkpoint. To restart it from its options:"
            f" postroom location reset-stream {self.location.name}."
        )

    def _make(self) -> uuid.UUID:
        """An empty checkpoint, as Spark begins one: the stream's id, which so is known before anything is read."""
        checkpoint_id = uuid.uuid4()
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / f".{checkpoint_id}"
        with unfinished.open("w") as writer:
            json.dump({"id": str(checkpoint_id)}, writer)
            writer.flush()
            os.fsync(writer.fileno())
        unfinished.replace(self.checkpoint / "metadata")
        return checkpoint_id

    def _put_aside(self) -> None:
        """Keep the folder of a stream that an operator restarts: it says which rows were read."""
        if self.folder.exists():
            kept = self.folder.with_name(f"{self.folder.name}.{uuid.uuid4()}")
            self.folder.rename(kept)
            _log.warning("%s is restarted; its old checkpoint is in %s", self.location.name, kept)


_WHY = "Without it nobody knows which rows were read: some would be lost, or published twice."
