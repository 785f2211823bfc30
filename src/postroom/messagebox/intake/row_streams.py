"""Records the streams of rows. Their offsets are only in Spark's checkpoints."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.messagebox.connection import Connection


@dataclass(frozen=True, kw_only=True)
class StreamRecord:
    """The checkpoint of a stream, and True if an operator has requested a new one (a reset)."""

    checkpoint_id: uuid.UUID
    reset_requested: bool


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """The last started batch of a stream."""

    batch: int
    partitions: int


def read_stream(connection: Connection, location_id: uuid.UUID) -> StreamRecord | None:
    """Return the stream of this location, or None if it was never started."""
    row = connection.execute("SELECT * FROM start_stream(%s, NULL)", (location_id,)).fetchone()
    return None if row is None else StreamRecord(checkpoint_id=row[0], reset_requested=row[1])


def start_stream(connection: Connection, location_id: uuid.UUID, checkpoint_id: uuid.UUID) -> None:
    """Record that the stream of a location starts, or starts again, with this checkpoint."""
    connection.execute("SELECT * FROM start_stream(%s, %s)", (location_id, checkpoint_id))


def start_batch(
    connection: Connection, location_id: uuid.UUID, checkpoint_id: uuid.UUID, batch: int, units: Sequence[uuid.UUID]
) -> BatchRecord | None:
    """Record a batch with a unit for each of its partitions, unless this batch or a newer one is recorded.

    Return the newest batch, or None if the stream has another checkpoint or a reset was requested.
    """
    row = connection.execute(
        "SELECT batch, partitions FROM start_stream_batch(%s, %s, %s, %s::uuid[])",
        (location_id, checkpoint_id, batch, list(units)),
    ).fetchone()
    return None if row is None else BatchRecord(batch=row[0], partitions=row[1])


def request_reset(connection: Connection, location_id: uuid.UUID) -> bool:
    """Let the stream of a location start with a new checkpoint when it is next started. Return False if it has none
    yet."""
    requested = connection.execute("UPDATE streams SET reset_requested = true WHERE location_id = %s", (location_id,))
    return requested.rowcount == 1
