"""The running sinks of a host. A sink with waiting messages gets a thread, which ends when no message waits.

One process at a time drains a sink and holds its lock. PostgreSQL releases the lock of a killed or frozen process, and
the next process continues the interrupted batch.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.adapters import SinkDefinition
from postroom.errors import DefinitionError, MessageBoxUnavailable, PostroomError, StateError
from postroom.messagebox.configuration.hosts import Host, is_host_stopped
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.streams.sink_batches import lock_sink
from postroom.messagebox.streams.sink_progress import lock_sinks_served
from postroom.ports.send_ports import read_send_ports
from postroom.processes.backoff import Backoff
from postroom.spark.error_reasons import format_reason
from postroom.spark.sinks.drain import Completion, Drain, SinkWritten
from postroom.spark.sinks.writer import SparkWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: A callback that gets the progress of each sink, from several threads.
SinkWatcher = Callable[[SinkWritten], None]

_CHECK_SECONDS = 1.0
#: The time between two checks whether another process has released the lock of a sink.
_STANDBY_SECONDS = 5.0
_BACKOFF = Backoff(first=0.5, longest=30.0)
_STOP_SECONDS = 15.0
#: The number of sinks that `pipeline run --once` drains at the same time.
_SINKS_AT_A_TIME = 4


class Sinks:
    """The sinks of one host. One thread calls ``check`` several times a second."""

    def __init__(self, session: SparkSession, host: Host, *, login: Login, home: Path) -> None:
        #: The number of messages that were written since the start.
        self.counts: Counter[str] = Counter()
        #: The batches and messages that were written since the start, by the name of the sink.
        self.batches: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self._login = login
        self._writer = SparkWriter(session, home)
        self._drain = Drain(self._writer, host, login=login, home=home)
        self._host = host
        self._served_by: int | None = None
        self._threads: dict[uuid.UUID, threading.Thread] = {}
        self._start_at: dict[uuid.UUID, float] = {}
        #: By port: the number of failures since the last batch that was written.
        self._failures: Counter[uuid.UUID] = Counter()
        self._check_at = 0.0
        self._stopping = threading.Event()

    def check(self, connection: Connection) -> None:
        """Start a thread for each sink with waiting messages."""
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + _CHECK_SECONDS
        self._report_served(connection)
        if is_host_stopped(connection, self._host.host_id):
            return
        for port_id in self._drain.queue.find_waiting_ports(connection):
            thread = self._threads.get(port_id)
            if (thread is None or not thread.is_alive()) and time.monotonic() >= self._start_at.get(port_id, 0.0):
                self._threads[port_id] = threading.Thread(
                    target=self._run, args=(port_id,), name=f"sink {port_id}", daemon=True
                )
                self._threads[port_id].start()

    def check_classes(self, connection: Connection) -> None:
        """Report the sinks that Spark lacks a jar for. Call it after each change of the configuration."""
        for port in read_send_ports(connection, host_id=self._host.host_id):
            thread = self._threads.get(port.port_id)
            if port.is_sink and (thread is None or not thread.is_alive()):
                try:
                    self._drain.report_unusable(connection, port)
                except DefinitionError as error:
                    _log.warning("%s", str(error).replace("\n", " "))

    def drain_all(
        self, connection: Connection, stopping: threading.Event, watcher: SinkWatcher = lambda progress: None
    ) -> list[PostroomError]:
        """Write the messages that wait now, several sinks at a time. Return the problems, also a missing jar of a
        started sink for which no message waits. A sink with a problem does not affect the others. ``watcher`` gets the
        progress at the start and after each batch."""
        self._report_served(connection)
        waiting = sorted(self._drain.queue.find_waiting_ports(connection))
        names = {port.port_id: port.name for port in read_send_ports(connection, ids=waiting)} if waiting else {}
        with ThreadPoolExecutor(_SINKS_AT_A_TIME, thread_name_prefix="sink") as threads:
            drained = [
                threads.submit(self._drain_all_batches, port_id, names.get(port_id, str(port_id)), stopping, watcher)
                for port_id in waiting
            ]
        failures = [*self._find_missing_jars(connection, waiting)]
        for sink in drained:
            try:
                written, failure = sink.result()
            except MessageBoxUnavailable:
                raise  # it affects every sink
            except PostroomError as error:
                written, failure = 0, error
            self.counts["written"] += written
            failures += [] if failure is None else [failure]
        for failure in failures:
            _log.warning("%s", str(failure).replace("\n", " "))
        return failures

    def _find_missing_jars(self, connection: Connection, waiting: Collection[uuid.UUID]) -> Iterator[PostroomError]:
        """Yield the error of each started sink that has no waiting messages and that Spark lacks a jar for."""
        for port in read_send_ports(connection, host_id=self._host.host_id):
            if port.is_sink and port.state is ServiceState.STARTED and port.port_id not in waiting:
                try:
                    error: PostroomError | None = self._drain.find_missing_jar(port)
                except DefinitionError as unreadable:
                    error = unreadable
                if error is not None:
                    yield error

    def _drain_all_batches(
        self, port_id: uuid.UUID, name: str, stopping: threading.Event, watcher: SinkWatcher
    ) -> tuple[int, PostroomError | None]:
        """Write the waiting messages of a sink. Return how many were written, and why the others could not be."""
        if stopping.is_set():
            return 0, None
        started = time.monotonic()

        def report_written(messages: int) -> None:
            seconds = time.monotonic() - started
            watcher(SinkWritten(sink=name, messages=messages, rate=messages / seconds if seconds else 0.0))

        with self._login.connect("sink") as connection:
            if not lock_sink(connection, port_id):
                raise served_by_other_error(name)
            try:
                report_written(0)
                drained = self._drain.drain_waiting(connection, port_id, stopping, report_written)
            except PostroomError:
                raise
            except Exception as error:
                if self._writer.has_died():
                    raise
                _log.warning("%s", name, exc_info=error)
                raise _write_failure(name, format_reason(error), "The batch is kept and written again.") from error
        _log.info("%s: %d messages written", name, drained.written)
        if drained.failure is None:
            return drained.written, None
        hint = "Its messages are retried by the port's policy, or suspended after the last retry."
        return drained.written, _write_failure(name, drained.failure, hint)

    def stop(self) -> None:
        """Wait a while for the batches that are being written. An unfinished batch is written again later."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, port_id: uuid.UUID) -> None:
        try:
            with self._login.connect("sink") as connection:
                if not lock_sink(connection, port_id):
                    self._start_at[port_id] = time.monotonic() + _STANDBY_SECONDS
                    return
                with self._drain.open_completion() as completion:
                    while not self._stopping.is_set() and self._drain_batch(connection, port_id, completion):
                        pass
        except Exception as error:
            self._pause_after_failure(port_id)
            expected = isinstance(error, PostroomError)
            _log.warning("sink %s: %s", port_id, format_reason(error), exc_info=None if expected else error)

    def _drain_batch(self, connection: Connection, port_id: uuid.UUID, completion: Completion) -> bool:
        """Write one batch. Return False if the next one has to wait, or if there is none."""
        started = time.monotonic()
        if is_host_stopped(connection, self._host.host_id):
            return False
        port = next(iter(read_send_ports(connection, ids=[port_id])), None)
        drained = self._drain.drain_once(connection, port_id, completion)
        if drained is None:
            return False
        if drained.searching:
            return True
        name = port.name if port else str(port_id)
        self.counts["written"] += drained.written
        self.batches[name] += drained.failure is None
        self.written[name] += drained.written
        _log.info("%s: %d messages written", name, drained.written)
        sink = port.adapter if port else None
        interval, batch_size = (sink.interval, sink.max_messages) if isinstance(sink, SinkDefinition) else (0.0, 0)
        if drained.failure is not None:
            self._pause_after_failure(port_id, at_least=interval)
            return False
        del self._failures[port_id]
        if drained.messages >= batch_size:
            return True  # the batch was full, so more messages may wait
        self._start_at[port_id] = started + interval
        return False

    def _pause_after_failure(self, port_id: uuid.UUID, *, at_least: float = 0.0) -> None:
        self._failures[port_id] += 1
        self._start_at[port_id] = time.monotonic() + max(at_least, _BACKOFF.delay(self._failures[port_id]))

    def _report_served(self, connection: Connection) -> None:
        session = connection.info.backend_pid
        if session != self._served_by:
            lock_sinks_served(connection, self._host.host_id)
            self._served_by = session


def served_by_other_error(name: str) -> StateError:
    """Return the error of `postroom pipeline run --once` for a receive location or sink that another process serves."""
    return StateError(
        f"{name} is served by another process.",
        why="Only one process at a time can serve it.",
        hint="See postroom pipeline show. Stop the other process, or let it do the work.",
    )


def _write_failure(name: str, why: str, hint: str) -> StateError:
    return StateError(f"{name}: some messages could not be written.", why=why, hint=hint)
