"""Write one batch of a sink, in steps that can be interrupted and repeated.

| step | after a crash during the step | if the step runs twice |
|---|---|---|
| open the batch | the next process opens the batch again, or a new one | the same messages, with a higher attempt |
| suspend or route a message without a row | it is in the batch, or removed | it was removed before |
| write the batch | files that readers ignore, or rows that are merged later | the same rows |
| publish the batch (files) | the directory exists, or not | an existing directory stays |
| record that the batch is written | the batch is opened again and found written | it is recorded already |
| complete the batch (while the next is written) | the next process completes it | the batch was removed before |
"""

from __future__ import annotations

import logging
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Protocol

from postroom.adapters import SinkDefinition
from postroom.adapters.kinds import load_send_adapter
from postroom.clock import system_clock
from postroom.errors import ClaimLost, DefinitionError, DeliveryFailure, PostroomError, StateError
from postroom.maps.port_maps import NO_MAPS
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.queues import MAX_DESCRIPTION, ScheduledRetry, Suspension
from postroom.messagebox.sinks.sink_batches import SinkBatch, SinkQueue
from postroom.messagebox.sinks.sink_progress import SinkReport
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT
from postroom.ports.send_ports import SendPort, read_send_ports
from postroom.spark.error_reasons import format_reason
from postroom.spark.sinks.file_sink import FileSinkTarget
from postroom.spark.sinks.row_format import RowFormat
from postroom.spark.sinks.task import SinkPort, SinkTask

_log = logging.getLogger(__name__)

_DELETED_PORT_BATCH_SIZE = 1_000
#: A batch is opened at most this often to find the messages that kill their workers.
MAX_BATCH_ATTEMPTS = 10

_RETRY_HINT = "It is retried by the port's policy. The log of the pipeline has the details."
_SUSPENSION_HINT = "Fix the sink and resume the instance. The log of the pipeline has the details."


class BatchWriter(Protocol):
    """Writes batches. SparkWriter implements it."""

    def target(self, sink: SinkDefinition) -> FileSinkTarget | None: ...

    def row_format(self, sink: SinkDefinition) -> RowFormat: ...

    def check(self, sink: SinkDefinition) -> None: ...

    def write(self, sink: SinkDefinition, batch: SinkBatch, task: SinkTask) -> None: ...

    def has_died(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Drained:
    """The outcome of a batch: the number of its messages, and how many of them were written."""

    messages: int
    written: int
    failure: str | None = None
    """Why the batch could not be written. Its messages are retried later, or suspended."""
    searching: bool = False
    """True while messages that kill their workers are being isolated. The batch has to be opened again at once."""
    last_seq: int = 0
    """The highest queue number of its messages."""


class Drain:
    """Writes the batches of the sinks of a host."""

    def __init__(self, writer: BatchWriter, host: Host, *, login: Login, home: Path) -> None:
        self._writer = writer
        self._host = host
        self._login = login
        self._home = home
        self._reports: dict[uuid.UUID, SinkReport] = {}
        self.queue = SinkQueue(host.name)

    def open_completion(self) -> Completion:
        """Return a completion for the calls of ``drain_once`` for one sink."""
        return Completion(self._login, self.queue)

    def drain_once(
        self, connection: Connection, port_id: uuid.UUID, completion: Completion | None = None
    ) -> Drained | None:
        """Write one batch. Return None if no message waits. A full batch is completed while the caller writes the next
        one, if a completion is given.

        Raise if the batch has to be opened again unchanged, because the MessageBox or Spark does not answer, or because
        it is unknown whether the batch was written."""
        report = self._reports.setdefault(port_id, SinkReport(port_id))
        report.store_writing(connection)
        try:
            drained = self._drain_one(connection, port_id, completion)
        except Exception as error:
            report.store_failure(connection, format_reason(error))
            raise
        if drained is None:
            report.store_waiting(connection)
        elif drained.failure is not None:
            report.store_failure(connection, drained.failure)
        else:
            report.store_batch(connection, drained.written, at=system_clock())
        return drained

    def report_unusable(self, connection: Connection, port: SendPort) -> StateError | None:
        """Report and return the error if Spark lacks a jar that a sink needs, even if no message waits for it."""
        report = self._reports.get(port.port_id)
        try:
            if isinstance(port.adapter, SinkDefinition):
                self._writer.check(port.adapter)
        except StateError as error:
            report = self._reports.setdefault(port.port_id, SinkReport(port.port_id))
            report.store_failure(connection, format_reason(error))
            return error
        if report is not None:
            report.store_waiting(connection)
        return None

    def _drain_one(self, connection: Connection, port_id: uuid.UUID, completion: Completion | None) -> Drained | None:
        if completion is None or not completion.is_running:
            for left in self.queue.find_written(connection, port_id):
                self.queue.complete(connection, left)
        port = next(iter(read_send_ports(connection, ids=[port_id])), None)
        configured = port.adapter if port else None
        limit = _DELETED_PORT_BATCH_SIZE
        if isinstance(configured, SinkDefinition):
            limit = configured.max_messages
            self._writer.check(configured)
        batch = self.queue.open_batch(connection, port_id, limit=limit, sink=port.adapter_json if port else None)
        if batch is None:
            return None
        last_seq = max(batch.seqs, default=0)
        sink = _load_sink(batch)
        if sink is None:
            self._suspend_all(connection, batch)
            return Drained(messages=len(batch.seqs), written=0, last_seq=last_seq)
        self._writer.check(sink)  # the port may have changed since the batch was fixed
        try:
            self._write(sink, batch, port)
        except ClaimLost:
            raise
        except Exception as error:
            if self._writer.has_died():
                raise
            if batch.attempt < MAX_BATCH_ATTEMPTS and self.queue.count_attempted(connection, batch):
                _log.warning(
                    "%s: a worker died; its messages are retried one by one", port.name if port else batch.batch_id
                )
                return Drained(messages=len(batch.seqs), written=0, failure=format_reason(error), searching=True)
            if not self._abandon(sink, batch):
                raise
            failure = self._fail(connection, batch, sink, port, error)
            return Drained(messages=len(batch.seqs), written=0, failure=failure)
        if completion is not None and len(batch.seqs) >= limit:
            written = completion.start(connection, batch)
        else:
            written = self.queue.complete(connection, batch)
        return Drained(messages=len(batch.seqs), written=written, last_seq=last_seq)

    def _write(self, sink: SinkDefinition, batch: SinkBatch, port: SendPort | None) -> None:
        target = self._writer.target(sink)
        if batch.seqs and (target is None or not target.is_published(batch)):
            task = SinkTask(
                login=self._login,
                host=self._host.name,
                port=SinkPort(
                    name=port.name if port else "",
                    kind=sink.kind,
                    uri=sink.address(self._home),
                    route_failures=port is not None and port.settings.route_failures,
                    maps=port.maps if port else NO_MAPS,
                    pipeline=port.pipeline if port else PASS_THRU_TRANSMIT,
                ),
                batch_id=batch.batch_id,
                attempt=batch.attempt,
                rows=self._writer.row_format(sink),
            )
            self._writer.write(sink, batch, task)
        if batch.seqs and target is not None:
            target.publish(batch)

    def _abandon(self, sink: SinkDefinition, batch: SinkBatch) -> bool:
        """Abandon a batch after a failed attempt. Return False if readers may see the batch, so that it has to stay
        unchanged."""
        try:
            target = self._writer.target(sink)
            return target is None or target.abandon(batch)
        except Exception as error:
            _log.warning("it is unknown whether batch %d was written: %s", batch.number, error)
            return False

    def _fail(
        self, connection: Connection, batch: SinkBatch, sink: SinkDefinition, port: SendPort | None, error: Exception
    ) -> str:
        """Retry the messages by the port's policy, or suspend them. Return the reason in one line."""
        failure = _to_failure(error)
        _log.debug("%s: %s", port.name if port else batch.batch_id, format_reason(failure))
        retries: dict[int, ScheduledRetry] = {}
        if port is not None and failure.can_retry:
            retry = ScheduledRetry(
                delay=timedelta(seconds=port.settings.retry.interval),
                code=failure.code,
                description=_describe(failure, _RETRY_HINT),
            )
            tries = zip(batch.seqs, batch.tries, strict=True)
            retries = dict.fromkeys([seq for seq, tried in tries if tried < port.settings.retry.count], retry)
        suspension = Suspension(
            code=failure.code,
            description=_describe(failure, _SUSPENSION_HINT),
            adapter=sink.kind,
            uri=sink.address(self._home),
        )
        suspensions = dict.fromkeys([seq for seq in batch.seqs if seq not in retries], suspension)
        self.queue.fail(connection, batch, retries, suspensions)
        target = self._writer.target(sink)
        if target is not None:
            try:
                target.discard(batch)
            except Exception as problem:
                _log.warning("the files of batch %d could not be removed: %s", batch.number, problem)
        return format_reason(failure)

    def _suspend_all(self, connection: Connection, batch: SinkBatch) -> None:
        suspension = Suspension(
            code="PORT_GONE",
            description="The send port was removed after the message was queued for it, or is no longer a Spark sink.\n"
            "Reroute the instance, terminate it, or apply an application that has the sink again and resume it.",
        )
        self.queue.fail(connection, batch, {}, dict.fromkeys(batch.seqs, suspension))


def _load_sink(batch: SinkBatch) -> SinkDefinition | None:
    try:
        adapter = load_send_adapter(batch.sink)
    except DefinitionError:
        return None
    return adapter if isinstance(adapter, SinkDefinition) else None


def _to_failure(error: Exception) -> PostroomError:
    if isinstance(error, PostroomError):
        return error
    return DeliveryFailure("The batch could not be written.", why=format_reason(error))


def _describe(failure: PostroomError, hint: str) -> str:
    """Return the description for operators. ``hint`` is used if the failure has none."""
    return "\n".join(filter(None, (failure.what, failure.why, failure.hint or hint)))[:MAX_DESCRIPTION]


class Completion:
    """Completes the batches of one sink in a thread with its own connection, one batch at a time.

    Leaving the block waits for the last batch. If the process dies before, the next one finds the batch written and
    completes it."""

    def __init__(self, login: Login, queue: SinkQueue) -> None:
        self._login = login
        self._queue = queue
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="complete")
        self._running: Future[int] | None = None

    def __enter__(self) -> Completion:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._thread.shutdown()
        if kind is None:
            self.wait()

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def start(self, connection: Connection, batch: SinkBatch) -> int:
        """Record that a batch is written, and start to complete it. Return the number of its messages. Wait for the
        batch before, and raise its error."""
        messages = self._queue.set_written(connection, batch)
        self.wait()
        self._running = self._thread.submit(self._complete, batch)
        return messages

    def wait(self) -> None:
        """Wait until the batch is completed. Raise the error if it is not."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def _complete(self, batch: SinkBatch) -> int:
        with self._login.connect("sink") as connection:
            return self._queue.complete(connection, batch)
