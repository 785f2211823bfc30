"""The running sinks of a host. A sink with waiting messages gets a thread, which ends when no message waits.

One process at a time drains a sink and holds its lock. PostgreSQL releases the lock of a killed or frozen process, and
the next process continues the interrupted batch.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.adapters import SinkDefinition
from postroom.errors import DefinitionError, PostroomError, StateError
from postroom.messagebox.configuration.hosts import Host, is_host_stopped
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.sinks.sink_batches import lock_sink
from postroom.messagebox.sinks.sink_progress import lock_sinks_served
from postroom.ports.send_ports import read_send_ports
from postroom.processes.backoff import Backoff
from postroom.spark.error_reasons import format_reason
from postroom.spark.single_run_errors import served_by_other_error
from postroom.spark.sinks.drain import Completion, Drain
from postroom.spark.sinks.writer import SparkWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
#: The time between two checks whether another process has released the lock of a sink.
_STANDBY_SECONDS = 5.0
_BACKOFF = Backoff(first=0.5, longest=30.0)
_STOP_SECONDS = 15.0

_KEPT = "The batch is kept and written again."
_RETRIED = "Its messages are retried by the port's policy, or suspended after the last retry."


class Sinks:
    """The sinks of one host. One thread calls ``check`` several times a second.

    With ``once``, each sink is drained once: messages that arrive meanwhile, or that have failed, are left."""

    def __init__(self, session: SparkSession, host: Host, *, login: Login, home: Path, once: bool = False) -> None:
        #: The number of messages that were written since the start.
        self.counts: Counter[str] = Counter()
        #: The batches and messages that were written since the start, by the name of the sink.
        self.batches: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        #: Why sinks could not be written, by port.
        self.problems: dict[uuid.UUID, PostroomError] = {}
        self._once = once
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

    def check(self, connection: Connection) -> bool:
        """Start a thread for each sink with waiting messages. Return False while a sink is written."""
        if time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + _CHECK_SECONDS
            self.report_served(connection)
            if not is_host_stopped(connection, self._host.host_id):
                self._start_threads(self._drain.queue.find_waiting_ports(connection))
        return not any(thread.is_alive() for thread in self._threads.values())

    def _start_threads(self, waiting: Iterable[uuid.UUID]) -> None:
        for port_id in waiting:
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
                    problem: PostroomError | None = self._drain.report_unusable(connection, port)
                except DefinitionError as error:
                    problem = error
                    _log.warning("%s", str(error).replace("\n", " "))
                if problem is not None and port.state is ServiceState.STARTED:
                    self.problems[port.port_id] = problem

    def stop(self) -> None:
        """Wait a while for the batches that are being written. An unfinished batch is written again later."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, port_id: uuid.UUID) -> None:
        name = str(port_id)
        try:
            with self._login.connect("sink") as connection:
                port = next(iter(read_send_ports(connection, ids=[port_id])), None)
                name = port.name if port else name
                if not lock_sink(connection, port_id):
                    self.problems[port_id] = served_by_other_error(name)
                    self._start_at[port_id] = time.monotonic() + _STANDBY_SECONDS
                    return
                self.problems.pop(port_id, None)
                self.written[name] += 0
                last = self._drain.queue.find_last_number(connection) if self._once else math.inf
                with self._drain.open_completion() as completion:
                    while not self._stopping.is_set() and self._drain_batch(connection, port_id, completion, last):
                        pass
        except Exception as error:
            self._pause_after_failure(port_id)
            expected = isinstance(error, PostroomError)
            # The process logs an expected error once, from the report of the sink.
            level = logging.DEBUG if expected else logging.WARNING
            _log.log(level, "%s: %s", name, format_reason(error), exc_info=None if expected else error)
            self.problems[port_id] = (
                error if isinstance(error, PostroomError) else _write_failure(name, format_reason(error), _KEPT)
            )
        finally:
            if self._once:
                self._start_at[port_id] = math.inf

    def _drain_batch(self, connection: Connection, port_id: uuid.UUID, completion: Completion, last: float) -> bool:
        """Write one batch. Return False if the next one has to wait, or if there is none. ``last`` is the number of the
        last message to write."""
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
        if drained.written:
            _log.info("%s: %d messages written", name, drained.written)
        sink = port.adapter if port else None
        interval, batch_size = (sink.interval, sink.max_messages) if isinstance(sink, SinkDefinition) else (0.0, 0)
        if drained.failure is not None:
            self._pause_after_failure(port_id, at_least=interval)
            self.problems[port_id] = _write_failure(name, drained.failure, _RETRIED)
            return False
        del self._failures[port_id]
        if self._once:
            return drained.last_seq < last
        if drained.messages >= batch_size:
            return True  # the batch was full, so more messages may wait
        self._start_at[port_id] = started + interval
        return False

    def _pause_after_failure(self, port_id: uuid.UUID, *, at_least: float = 0.0) -> None:
        self._failures[port_id] += 1
        self._start_at[port_id] = time.monotonic() + max(at_least, _BACKOFF.delay(self._failures[port_id]))

    def report_served(self, connection: Connection) -> None:
        """Report that this process serves the sinks of the host."""
        session = connection.info.backend_pid
        if session != self._served_by:
            lock_sinks_served(connection, self._host.host_id)
            self._served_by = session


def _write_failure(name: str, why: str, hint: str) -> StateError:
    return StateError(f"{name}: some messages could not be written.", why=why, hint=hint)
