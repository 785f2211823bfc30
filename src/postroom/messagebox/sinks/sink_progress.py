"""Stores the progress of the sinks of a pipeline process, for ``postroom pipeline show``.

report = SinkReport(port_id)
report.store_writing(connection)
report.store_batch(connection, 10_000, at=system_clock())
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import Enum

from psycopg.rows import dict_row

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.heartbeat import keep_alive
from postroom.messagebox.intake.location_progress import store_progress
from postroom.messagebox.statements import statement

_log = logging.getLogger(__name__)

#: The class of the advisory locks of processes that serve sinks. The object of a lock is the id of the host.
SINKS_SERVED_LOCK = 7009


class SinkState(Enum):
    """The state of a sink."""

    WAITING = "waiting"
    WRITING = "writing"
    FAILING = "failing"


@dataclass(frozen=True, kw_only=True)
class SinkProgress:
    """The progress of a sink since its process was started."""

    state: SinkState = SinkState.WAITING
    reason: str | None = None
    batches: int = 0
    written: int = 0
    rate: float = 0.0
    """Messages per second of the last batch. 0 while it waits."""
    last_batch_at: datetime | None = None


class SinkReport:
    """Stores the progress of one sink. Used by one thread at a time."""

    def __init__(self, port_id: uuid.UUID, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._port_id = port_id
        self._monotonic = monotonic
        self._started = monotonic()
        self._progress = SinkProgress()
        self._first = True

    def store_writing(self, connection: Connection) -> None:
        self._started = self._monotonic()
        self._store(connection, replace(self._progress, state=SinkState.WRITING))

    def store_waiting(self, connection: Connection) -> None:
        self._store(connection, replace(self._progress, state=SinkState.WAITING, reason=None, rate=0.0))

    def store_batch(self, connection: Connection, messages: int, *, at: datetime) -> None:
        seconds = max(self._monotonic() - self._started, 0.001)
        progress = SinkProgress(
            batches=self._progress.batches + 1,
            written=self._progress.written + messages,
            rate=round(messages / seconds, 1),
            last_batch_at=at,
        )
        self._store(connection, progress)

    def store_failure(self, connection: Connection, reason: str) -> None:
        self._store(connection, replace(self._progress, state=SinkState.FAILING, reason=reason))

    def _store(self, connection: Connection, progress: SinkProgress) -> None:
        values = asdict(progress) | {"port_id": self._port_id}
        try:
            store_progress(connection, "queries/report_running_sink", values, first=self._first)
        except PostroomError as error:
            # A batch must not fail because of it: the connection may be lost, or the port deleted.
            _log.debug("the progress of sink %s cannot be stored: %s", self._port_id, error)
            return
        self._progress, self._first = progress, False


def lock_sinks_served(connection: Connection, host_id: int) -> None:
    """Lock the sinks of a host for the rest of the session, to show that a process serves them."""
    keep_alive(connection)
    connection.execute("SELECT pg_advisory_lock_shared(%s, %s)", (SINKS_SERVED_LOCK, host_id))


@dataclass(frozen=True, kw_only=True)
class ReportedSink(SinkProgress):
    """The last report about a sink, and the process that has stored it. ``since`` is when its state began."""

    since: datetime | None = None
    server: str = ""
    pid: int = 0


def read_reported_sinks(connection: Connection) -> dict[uuid.UUID, ReportedSink]:
    """Return the last report about each sink, by the id of the port."""
    columns = "state, since, server, pid, batches, written, rate, last_batch_at, reason"
    rows = connection.cursor(row_factory=dict_row).execute(f"SELECT port_id, {columns} FROM running_sinks")
    return {row.pop("port_id"): ReportedSink(**row | {"state": SinkState(row["state"])}) for row in rows}


def read_served_hosts(connection: Connection) -> set[int]:
    """Return the ids of the hosts whose sinks a process serves."""
    return {host_id for (host_id,) in connection.execute(statement("queries/held_locks"), (SINKS_SERVED_LOCK,))}
