"""One batch of a sink, from the queue to where it goes, in steps that can each be interrupted and run again.

| step | if the process dies before its end | if it runs twice |
|---|---|---|
| open the batch | the batch is there for whoever opens it next, or not | the same messages, one attempt older |
| suspend or route what cannot be a row | it is in the batch, or it is not | it is not there any more |
| write it | files that nobody looks at, rows that will be merged | the same rows |
| publish it (files) | the directory is there, or it is not | a directory that is there stays |
| complete it | the batch is opened again, and found to be written | the batch is gone |
"""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from postroom.adapters import AnySink
from postroom.adapters.kinds import load_port_adapter
from postroom.clock import system_clock
from postroom.errors import ClaimLost, DefinitionError, DeliveryFailure, PostroomError
from postroom.maps.port_maps import NO_MAPS
from postroom.messagebox.configuration import Host, SendPort, read_send_ports
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import Retry, Suspension
from postroom.messagebox.streams.running_sinks import SinkReport
from postroom.messagebox.streams.sink_batches import SinkBatch, SinkQueue
from postroom.spark.login import Login
from postroom.spark.reasons import reason_of
from postroom.spark.sinks.files import FileTarget
from postroom.spark.sinks.rows import RowFormat
from postroom.spark.sinks.task import SinkPort, SinkTask

_log = logging.getLogger(__name__)

_LONGEST_DESCRIPTION = 8000
_BATCH_OF_A_LOST_PORT = 1_000
#: A batch is opened at most this often to find the messages that kill their workers.
MAX_BATCH_ATTEMPTS = 10

_AGAIN = "It is tried again by the port's policy. The log of the pipeline has the whole account."
_NO_MORE = "Mend the sink and resume the instance. The log of the pipeline has the whole account."


class BatchWriter(Protocol):
    """Who writes: Spark (writer.py)."""

    def target(self, sink: AnySink) -> FileTarget | None: ...

    def row_format(self, sink: AnySink) -> RowFormat: ...

    def write(self, sink: AnySink, batch: SinkBatch, task: SinkTask) -> None: ...

    def has_died(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What became of a batch, or of several: how many messages it had, and how many of them are written now."""

    messages: int
    written: int
    failure: str | None = None
    """Why it could not be written; its messages are tried again later, or suspended."""
    searching: bool = False
    """Messages in it end the workers that make their rows, and are being found: it is to be opened again at once."""
    newest: int = 0
    """The highest number in the queue among its messages."""


class Drain:
    """The sinks of a host."""

    def __init__(self, writer: BatchWriter, host: Host, *, login: Login, home: Path) -> None:
        self._writer = writer
        self._host = host
        self._login = login
        self._home = home
        self._reports: dict[uuid.UUID, SinkReport] = {}
        self.queue = SinkQueue(host.name)

    def drain_what_waits(self, connection: Connection, port_id: uuid.UUID, stopping: threading.Event) -> Drained:
        """Batch after batch, until what waits now is written or a batch cannot be; what comes meanwhile is for the next
        time. Returns what became of all of them together."""
        last = self.queue.newest(connection)
        total = Drained(messages=0, written=0)
        while not stopping.is_set():
            drained = self.drain_once(connection, port_id)
            if drained is None:
                break
            if drained.searching:
                continue
            total = replace(
                drained, messages=total.messages + drained.messages, written=total.written + drained.written
            )
            if drained.failure is not None or drained.newest >= last:
                break
        return total

    def drain_once(self, connection: Connection, port_id: uuid.UUID) -> Drained | None:
        """Writes one batch; None if nothing waits.

        Raises when the batch is left as it is, to be opened again: the MessageBox or Spark is away, or nobody knows
        whether it was written."""
        report = self._reports.setdefault(port_id, SinkReport(port_id))
        report.writes(connection)
        try:
            drained = self._drain_one(connection, port_id)
        except Exception as error:
            report.fails(connection, reason_of(error))
            raise
        if drained is None:
            report.waits(connection)
        elif drained.failure is not None:
            report.fails(connection, drained.failure)
        else:
            report.has_written(connection, drained.written, at=system_clock())
        return drained

    def _drain_one(self, connection: Connection, port_id: uuid.UUID) -> Drained | None:
        port = next(iter(read_send_ports(connection, ids=[port_id])), None)
        configured = port.adapter if port else None
        limit = configured.max_messages if isinstance(configured, AnySink) else _BATCH_OF_A_LOST_PORT
        batch = self.queue.open(connection, port_id, limit=limit)
        if batch is None:
            return None
        newest = max(batch.seqs, default=0)
        sink = _sink_of(batch)
        if sink is None:
            self._give_up(connection, batch)
            return Drained(messages=len(batch.seqs), written=0, newest=newest)
        try:
            self._write(sink, batch, port)
        except ClaimLost:
            raise
        except Exception as error:
            if self._writer.has_died():
                raise
            if batch.attempt < MAX_BATCH_ATTEMPTS and self.queue.count_attempted(connection, batch):
                _log.warning(
                    "%s: a worker died; its messages are retried one by one",
                    port.name if port else "",
                )
                return Drained(messages=len(batch.seqs), written=0, failure=reason_of(error), searching=True)
            if not self._is_given_up(sink, batch):
                raise
            failure = self._fail(connection, batch, sink, port, error)
            return Drained(messages=len(batch.seqs), written=0, failure=failure)
        written = self.queue.complete(connection, batch)
        return Drained(messages=len(batch.seqs), written=written, newest=newest)

    def _write(self, sink: AnySink, batch: SinkBatch, port: SendPort | None) -> None:
        target = self._writer.target(sink)
        if batch.seqs and (target is None or not target.is_there(batch)):
            task = SinkTask(
                login=self._login,
                host=self._host.name,
                port=SinkPort(
                    name=port.name if port else "",
                    kind=sink.kind,
                    uri=sink.address(self._home),
                    route_failures=port is not None and port.route_failures,
                    maps=port.maps if port else NO_MAPS,
                ),
                batch_id=batch.batch_id,
                attempt=batch.attempt,
                rows=self._writer.row_format(sink),
            )
            self._writer.write(sink, batch, task)
        if batch.seqs and target is not None:
            target.publish(batch)

    def _is_given_up(self, sink: AnySink, batch: SinkBatch) -> bool:
        """Whether readers will never see the batch, after an attempt at it failed: else it has to stay as it is."""
        try:
            target = self._writer.target(sink)
            return target is None or target.give_up(batch)
        except Exception as error:
            _log.warning("nobody can say whether batch %d was written: %s", batch.number, error)
            return False

    def _fail(
        self, connection: Connection, batch: SinkBatch, sink: AnySink, port: SendPort | None, error: Exception
    ) -> str:
        """Every message once more, by the port's policy, or suspended when that is used up. Returns why, in a line."""
        failure = _failure(error)
        _log.warning("%s: %s", port.name if port else batch.batch_id, reason_of(failure))
        retries: dict[int, Retry] = {}
        if port is not None and failure.can_retry:
            retry = Retry(delay=port.retry_interval, code=failure.code, description=_told(failure, _AGAIN))
            tries = zip(batch.seqs, batch.tries, strict=True)
            retries = dict.fromkeys([seq for seq, tried in tries if tried < port.retry_count], retry)
        suspension = Suspension(
            code=failure.code,
            description=_told(failure, _NO_MORE),
            adapter=sink.kind,
            uri=sink.address(self._home),
        )
        left = dict.fromkeys([seq for seq in batch.seqs if seq not in retries], suspension)
        self.queue.fail(connection, batch, retries, left)
        target = self._writer.target(sink)
        if target is not None:
            try:
                target.discard(batch)
            except Exception as left_over:
                _log.warning("what was written of batch %d could not be removed: %s", batch.number, left_over)
        return reason_of(failure)

    def _give_up(self, connection: Connection, batch: SinkBatch) -> None:
        suspension = Suspension(
            code="PORT_GONE",
            description="The send port was deleted, or is no Spark sink any more.\n"
            "Terminate the instance, or resume it when the sink is there again.",
        )
        self.queue.fail(connection, batch, {}, dict.fromkeys(batch.seqs, suspension))


def _sink_of(batch: SinkBatch) -> AnySink | None:
    try:
        adapter = load_port_adapter(batch.sink)
    except DefinitionError:
        return None
    return adapter if isinstance(adapter, AnySink) else None


def _failure(error: Exception) -> PostroomError:
    if isinstance(error, PostroomError):
        return error
    return DeliveryFailure("The batch could not be written.", why=reason_of(error))


def _told(failure: PostroomError, hint: str) -> str:
    """What operators read of it: its own hint, or what happens next."""
    return "\n".join(filter(None, (failure.what, failure.why, failure.hint or hint)))[:_LONGEST_DESCRIPTION]
