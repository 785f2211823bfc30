"""The sinks of a host at work: whoever has something to write gets a thread, which ends when nothing is left.

A sink is drained by one process at a time, which holds its lock; the lock of a killed one is free at once, and whoever
takes it goes on with the batch that was begun.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.adapters import AnySink
from postroom.errors import MessageBoxUnavailable, PostroomError, StateError
from postroom.messagebox.configuration import Host, read_send_ports
from postroom.messagebox.connection import Connection
from postroom.messagebox.streams.running_sinks import lock_sinks_served
from postroom.spark.login import Login
from postroom.spark.reasons import reason_of
from postroom.spark.sinks.drain import Drain
from postroom.spark.sinks.writer import SparkWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: The class of the advisory locks on sinks; the other half is derived from the port's id.
SINK_LOCK = 7008

_LOOK_SECONDS = 1.0
#: After a failure that left the batch as it was, and while another process has the sink.
_PAUSE_SECONDS = 5.0
_STOP_SECONDS = 15.0


def sink_lock(port_id: uuid.UUID) -> int:
    """The object of a sink's advisory lock: a signed number of 32 bits."""
    return int.from_bytes(port_id.bytes[:4], "big", signed=True)


class Sinks:
    """The sinks of one host. ``check`` is to be called every so often, by one thread."""

    def __init__(self, session: SparkSession, host: Host, *, login: Login, home: Path) -> None:
        #: How many messages were written, since the start.
        self.counts: Counter[str] = Counter()
        self._login = login
        self._writer = SparkWriter(session, home)
        self._drain = Drain(self._writer, host, login=login, home=home)
        self._host = host
        self._served_by: int | None = None
        self._threads: dict[uuid.UUID, threading.Thread] = {}
        self._not_before: dict[uuid.UUID, float] = {}
        self._look_at = 0.0
        self._stopping = threading.Event()

    def check(self, connection: Connection) -> None:
        """Starts a thread for each sink that has something to do."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._say_that_they_are_served(connection)
        for port_id in self._drain.queue.waiting(connection):
            thread = self._threads.get(port_id)
            if (thread is None or not thread.is_alive()) and time.monotonic() >= self._not_before.get(port_id, 0.0):
                self._threads[port_id] = threading.Thread(
                    target=self._work, args=(port_id,), name=f"sink {port_id}", daemon=True
                )
                self._threads[port_id].start()

    def drain_all(self, connection: Connection, stopping: threading.Event) -> list[PostroomError]:
        """What waits now, sink by sink, until it is written or a batch cannot be. One that cannot go on does not hold
        up the others; returns what was wrong."""
        problems: list[PostroomError] = []
        self._say_that_they_are_served(connection)
        for port_id in sorted(self._drain.queue.waiting(connection)):
            if stopping.is_set():
                break
            port = next(iter(read_send_ports(connection, ids=[port_id])), None)
            try:
                self._drain_to_the_end(port_id, port.name if port else str(port_id), stopping)
            except MessageBoxUnavailable:
                raise  # for every sink
            except PostroomError as error:
                _log.warning("%s", str(error).replace("\n", " "))
                problems.append(error)
        return problems

    def _drain_to_the_end(self, port_id: uuid.UUID, name: str, stopping: threading.Event) -> None:
        """Raises what is to be told of the sink, and what is wrong for all of them."""
        with self._login.connect("sink") as connection:
            if not _lock(connection, port_id):
                raise served_by_another(name)
            try:
                drained = self._drain.drain_what_waits(connection, port_id, stopping)
            except PostroomError:
                raise
            except Exception as error:
                if self._writer.has_died():
                    raise
                _log.warning("%s", name, exc_info=error)
                raise _not_written(name, reason_of(error), "The batch stays as it is, and is written again.") from error
        self.counts["written"] += drained.written
        _log.info("%s: %d messages written", name, drained.written)
        if drained.failure is not None:
            raise _not_written(
                name, drained.failure, "Its messages are tried again by the port's policy, or suspended when that ends."
            )

    def stop(self) -> None:
        """Lets batches that are being written finish, for a while; what does not is written again later."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self, port_id: uuid.UUID) -> None:
        try:
            with self._login.connect("sink") as connection:
                if not _lock(connection, port_id):
                    self._not_before[port_id] = time.monotonic() + _PAUSE_SECONDS
                    return
                while not self._stopping.is_set() and self._drain_one(connection, port_id):
                    pass
        except Exception as error:
            self._not_before[port_id] = time.monotonic() + _PAUSE_SECONDS
            expected = isinstance(error, PostroomError)
            _log.warning("sink %s: %s", port_id, reason_of(error), exc_info=None if expected else error)

    def _drain_one(self, connection: Connection, port_id: uuid.UUID) -> bool:
        """One batch; False when the next one has to wait for its time, or there is none."""
        began = time.monotonic()
        port = next(iter(read_send_ports(connection, ids=[port_id])), None)
        drained = self._drain.drain_once(connection, port_id)
        if drained is None:
            return False
        if drained.searching:
            return True
        self.counts["written"] += drained.written
        _log.info("%s: %d messages written", port.name if port else port_id, drained.written)
        sink = port.adapter if port else None
        interval, most = (sink.interval, sink.max_messages) if isinstance(sink, AnySink) else (0.0, 0)
        if drained.failure is not None:
            self._not_before[port_id] = time.monotonic() + max(interval, _PAUSE_SECONDS)
            return False
        if drained.messages >= most:
            return True  # there may be more, and nothing to gather for
        self._not_before[port_id] = began + interval
        return False

    def _say_that_they_are_served(self, connection: Connection) -> None:
        session = connection.info.backend_pid
        if session != self._served_by:
            lock_sinks_served(connection, self._host.host_id)
            self._served_by = session


def served_by_another(name: str) -> StateError:
    """What `postroom pipeline run --once` says of a receive location or a sink that it could not serve."""
    return StateError(
        f"{name} is served by another process.",
        why="What is there for it is that one's work.",
        hint="See postroom pipeline show. End the other process, or leave it to that one.",
    )


def _not_written(name: str, why: str, hint: str) -> StateError:
    return StateError(f"{name}: not everything could be written.", why=why, hint=hint)


def _lock(connection: Connection, port_id: uuid.UUID) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (SINK_LOCK, sink_lock(port_id))).fetchone()
    assert row is not None
    return bool(row[0])
