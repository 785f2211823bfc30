"""The checkpoint of a row stream: Spark's checkpoint folder, and its id in the MessageBox.

Only the checkpoint records which rows were read. A stream without it would start where its options say, and lose rows
or publish them again. So a missing or old checkpoint is detected before anything is read.
"""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass
from pathlib import Path

from postroom.agent.idempotency import unit_for_partition
from postroom.errors import StateError, format_count
from postroom.files.safe_files import replace_file
from postroom.messagebox.connection import Login
from postroom.messagebox.streams.row_streams import read_stream, start_batch, start_stream
from postroom.ports.receive_locations import ReceiveLocation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StreamCheckpoint:
    """The checkpoint of the stream of one location. ``folder`` contains it."""

    login: Login
    location: ReceiveLocation
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

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
