"""What the sinks of a pipeline process say of themselves, for ``postroom pipeline show``.

report = SinkReport(port_id)
report.writes(connection)
report.has_written(connection, 10_000, at=system_clock())
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import Enum

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import to_storable_text
from postroom.messagebox.statements import statement

_log = logging.getLogger(__name__)

#: The class of the locks that say that a process serves the sinks of a host; the other half is the host's id.
SINKS_SERVED_LOCK = 7009


class SinkState(Enum):
    """How a sink is getting on."""

    WAITING = "waiting"
    WRITING = "writing"
    FAILING = "failing"


@dataclass(frozen=True, kw_only=True)
class SinkProgress:
    """What a sink has written since its process was started."""

    state: SinkState = SinkState.WAITING
    reason: str | None = None
    batches: int = 0
    written: int = 0
    last_batch_at: datetime | None = None


class SinkReport:
    """Tells of one sink. Used by one thread at a time."""

    def __init__(self, port_id: uuid.UUID) -> None:
        self._port_id = port_id
        self._progress = SinkProgress()
        self._first = True

    def writes(self, connection: Connection) -> None:
        self._tell(connection, replace(self._progress, state=SinkState.WRITING))

    def waits(self, connection: Connection) -> None:
        self._tell(connection, replace(self._progress, state=SinkState.WAITING, reason=None))

    def has_written(self, connection: Connection, messages: int, *, at: datetime) -> None:
        progress = SinkProgress(
            batches=self._progress.batches + 1, written=self._progress.written + messages, last_batch_at=at
        )
        self._tell(connection, progress)

    def fails(self, connection: Connection, reason: str) -> None:
        self._tell(connection, replace(self._progress, state=SinkState.FAILING, reason=to_storable_text(reason)))

    def _tell(self, connection: Connection, progress: SinkProgress) -> None:
        told = {"port_id": self._port_id, "server": socket.gethostname(), "pid": os.getpid(), "first": self._first}
        try:
            with connection.transaction():
                # Not worth waiting for the disk.
                connection.execute("SET LOCAL synchronous_commit = off")
                connection.execute(
                    statement("queries/report_running_sink"),
                    {**asdict(progress), "state": progress.state.value, **told},
                )
        except PostroomError as error:
            # Nor worth a batch: the connection may be what fails, or the port is gone.
            _log.debug("nothing can be told of sink %s: %s", self._port_id, error)
            return
        self._progress, self._first = progress, False


def lock_sinks_served(connection: Connection, host_id: int) -> None:
    """Says so for as long as the session lasts."""
    connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", (SINKS_SERVED_LOCK, host_id))
