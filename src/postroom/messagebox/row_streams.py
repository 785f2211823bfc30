"""What the MessageBox remembers of streams of rows, whose offsets only Spark's checkpoint knows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from postroom.messagebox.connection import Connection


@dataclass(frozen=True, kw_only=True)
class StreamRecord:
    """A stream that has begun, with which checkpoint, and whether it is to begin anew when it is next started."""

    checkpoint_id: uuid.UUID
    anew: bool


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """The newest batch of a stream that was begun."""

    batch: int
    partitions: int


def known_stream(connection: Connection, location_id: uuid.UUID) -> StreamRecord | None:
    """None if the stream of this location has never begun."""
    row = connection.execute("SELECT * FROM begin_stream(%s, NULL)", (location_id,)).fetchone()
    return None if row is None else StreamRecord(checkpoint_id=row[0], anew=row[1])


def begin_stream(connection: Connection, location_id: uuid.UUID, checkpoint_id: uuid.UUID) -> None:
    """Writes down that the stream of a location begins, or begins anew, with this checkpoint."""
    connection.execute("SELECT * FROM begin_stream(%s, %s)", (location_id, checkpoint_id))


def begin_batch(
    connection: Connection, location_id: uuid.UUID, checkpoint_id: uuid.UUID, batch: int, units: Sequence[uuid.UUID]
) -> BatchRecord | None:
    """Writes down a batch, with a unit for each of its partitions, unless a newer one is known or this one was begun
    before. The answer is what is known then; None if the stream goes on elsewhere, or anew."""
    row = connection.execute(
        "SELECT batch, partitions FROM begin_stream_batch(%s, %s, %s, %s::uuid[])",
        (location_id, checkpoint_id, batch, list(units)),
    ).fetchone()
    return None if row is None else BatchRecord(batch=row[0], partitions=row[1])
