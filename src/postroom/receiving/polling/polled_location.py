"""A receive location whose adapter runs in a host: the host polls it, publishes each batch, and has it cleaned up.

Each interchange has a receipt, which is derived from its key at the source. An interchange that comes again, because
the process ended before it was cleaned up, is only cleaned up.

If the process that served the location before was killed, the first batch may contain what killed it. So its
interchanges are processed alone, and one that has killed several processes is suspended (agent/poison_messages.py).
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from postroom.adapters.contract import Committed, Incoming, ReceiveAdapter, Refused
from postroom.agent.idempotency import interchange_for_key
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.clock import Clock, system_clock
from postroom.errors import MessageBoxUnavailable, PostroomError
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.streams.location_lock import LocationLock
from postroom.messagebox.streams.location_progress import (
    LocationProgress,
    LocationReport,
    LocationState,
    Rate,
    was_killed,
)
from postroom.messagebox.streams.poll_attempts import delete_attempts, record_attempt, undo_attempt
from postroom.messagebox.throttling.load import ThrottleWatch
from postroom.messagebox.throttling.process_load import find_process_limits
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.receiving.task import OUTCOMES, ReceiveSource, ReceiveTask, Worker

_log = logging.getLogger(__name__)

#: The time between two checks whether another process has released the location, or its schedule has opened.
_STANDBY_SECONDS = 1.0
_BACKOFF = Backoff(first=0.5, longest=5.0)


@dataclass(frozen=True, kw_only=True)
class PolledInterchange:
    """An interchange that an adapter has found, with the id of its key."""

    interchange_id: uuid.UUID
    incoming: Incoming


class PolledBatch(ReceiveSource[PolledInterchange, PolledInterchange]):
    """What one poll of an adapter has returned. The adapter cleans it up after all of it was received."""

    def __init__(self, location: ReceiveLocation, batch: Sequence[Incoming], *, is_isolated: bool) -> None:
        self.location = location
        self._is_isolated = is_isolated
        ids = {interchange_for_key(location.location_id, incoming.key): incoming for incoming in batch}
        self.rows = [PolledInterchange(interchange_id=unit, incoming=incoming) for unit, incoming in ids.items()]
        #: Why an interchange was left at the source.
        self.failure: Exception | None = None

    def read(self, connection: Connection, rows: Sequence[PolledInterchange]) -> list[PolledInterchange]:
        return list(rows)

    def interchange(self, item: PolledInterchange) -> Interchange:
        body, context = item.incoming.body, item.incoming.context
        return Interchange(interchange_id=item.interchange_id, body=body, context=context, seed=uuid.uuid4())

    def describe(self, item: PolledInterchange) -> str:
        return item.incoming.key

    def finish(self, connection: Connection, items: Sequence[PolledInterchange]) -> None:
        if self._is_isolated:
            for item in items:
                delete_attempts(connection, self.location.location_id, item.interchange_id)

    def quarantine(self, connection: Connection, item: PolledInterchange, error: Exception) -> None:
        self.failure = error

    def record_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> int:
        return record_attempt(connection, self.location.location_id, interchange_id)

    def undo_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> None:
        undo_attempt(connection, interchange_id)


class PolledLocation:
    """Serves one location in a thread, between ``start`` and ``stop``. One process at a time serves a location."""

    def __init__(
        self,
        location: ReceiveLocation,
        *,
        connect: Connect,
        home: Path,
        routing: RoutingTable,
        clock: Clock = system_clock,
    ) -> None:
        self.location = location
        #: The counts since the start: files are interchanges, the others messages.
        self.counts: Counter[str] = Counter()
        #: None while another process serves the location, or none.
        self.state: LocationState | None = None
        #: Why the last poll failed.
        self.failure: str | None = None
        self._clock = clock
        self.adapter: ReceiveAdapter = location.adapter.make_receiver(home)
        self._connect = connect
        self._connection = LazyConnection(connect)
        #: True until a batch is finished after the process before this one was killed.
        self._is_isolated = False
        self._lock: LocationLock | None = None
        self._routing = routing
        self._throttle = ThrottleWatch(location.host_id, find_process_limits)
        self._report = LocationReport()
        self._rate = Rate()
        self._last_batch_at: datetime | None = None
        self.loop = BackgroundLoop(f"receiving of {location.name}", self.step, backoff=_BACKOFF)

    def close(self) -> None:
        """Release the location. The loop has ended."""
        self.adapter.close()
        if self._lock is not None:
            with suppress(PostroomError):
                self._report.delete(self._connection.get(), self.location.location_id)
                self._lock.release()
        self._lock = None
        self.state = None
        self._connection.close()

    def step(self) -> float:
        """Receive one batch. Return the seconds until the next poll."""
        try:
            connection = self._connection.get()
            is_served_here = self._acquire(connection)
        except Exception:
            self.close()
            raise
        if not is_served_here:
            return _STANDBY_SECONDS
        try:
            delay = self._receive(connection)
        except MessageBoxUnavailable:
            self.close()  # another process may serve the location now
            raise
        except Exception as error:
            self.failure = " ".join(str(error).split()) or type(error).__name__
            self._store_progress(connection, LocationState.FAILING, self.failure)
            raise
        self.failure = None
        return delay

    def _acquire(self, connection: Connection) -> bool:
        """Return True if this process serves the location now."""
        if not self.location.receives_at(self._clock()):
            if self._lock is not None:
                self.close()
            return False
        if self._lock is not None:
            return self._lock.acquire()
        lock = LocationLock(connection, self.location.location_id)
        if not lock.acquire():
            return False
        if self.location not in read_receive_locations(connection, host_id=self.location.host_id):
            # It has changed while this process was frozen, and is about to be replaced.
            lock.release()
            return False
        self._lock = lock
        self._is_isolated = was_killed(connection, self.location.location_id)
        self.adapter.open()
        self._store_progress(connection, LocationState.RECEIVING)
        _log.info("%s: receiving", self.location.name)
        return True

    def _receive(self, connection: Connection) -> float:
        throttle = self._throttle.current(connection, self.location.location_id)
        if throttle is not None:
            self._store_progress(connection, LocationState.THROTTLED, throttle.reason)
            return throttle.delay
        batch = self.adapter.poll(self.location.adapter.poll_limit)
        before = self.counts["files"]
        if batch:
            self._receive_and_clean_up(connection, batch)
            self._last_batch_at = self._clock()
        self._store_progress(connection, LocationState.RECEIVING)
        # A source that returns only what it returned before is not polled without a pause.
        return 0.0 if self.counts["files"] > before else self.location.adapter.polling_interval

    def _receive_and_clean_up(self, connection: Connection, batch: Sequence[Incoming]) -> None:
        source = PolledBatch(self.location, batch, is_isolated=self._is_isolated)
        try:
            results = self._receive_rows(connection, source, source.rows)
        except MessageBoxUnavailable:
            self.adapter.release(batch)
            raise
        if self._is_isolated:
            delete_attempts(connection, self.location.location_id)
            self._is_isolated = False
        for result in results:
            messages = {name: int(getattr(result, name)) for name in OUTCOMES if name != "files"}
            self.counts.update(messages, files=int(any(messages.values())))
            self._rate.add(result.published)
        by_id = {row.interchange_id: row.incoming for row in source.rows}
        done = {result.interchange_id: result for result in results if not result.unfinished}
        if left := [incoming for interchange_id, incoming in by_id.items() if interchange_id not in done]:
            self.adapter.release(left)
        if committed := [
            Committed(incoming=by_id[result.interchange_id], suspended=result.suspended > 0)
            for result in done.values()
            if result.refused is None
        ]:
            self.adapter.clean_up(committed)
        if refused := [
            Refused(incoming=by_id[result.interchange_id], failure=result.refused)
            for result in done.values()
            if result.refused is not None
        ]:
            self.adapter.refuse(refused)
        if left and source.failure is not None:
            raise source.failure

    def _receive_rows(
        self, connection: Connection, source: PolledBatch, rows: Sequence[PolledInterchange]
    ) -> list[ReceiveResult]:
        """Receive interchanges together. If one of them makes the source unavailable, or has ended the process before,
        receive each alone: it does not stop the others. Raise MessageBoxUnavailable."""
        if self._is_isolated and len(rows) > 1:
            return self._receive_one_by_one(connection, source, rows)
        receiver = Receiver(connection, self._routing, clock=self._clock)
        worker = Worker(connection=connection, receiver=receiver, connect=self._connect)
        task = ReceiveTask(source=source, paced=True, can_refuse=True, process="host process")
        try:
            return task.receive(worker, rows, isolated=self._is_isolated)
        except MessageBoxUnavailable:
            raise
        except Exception as error:
            if len(rows) == 1:
                source.failure = error
                return []
        return self._receive_one_by_one(connection, source, rows)

    def _receive_one_by_one(
        self, connection: Connection, source: PolledBatch, rows: Sequence[PolledInterchange]
    ) -> list[ReceiveResult]:
        return [result for row in rows for result in self._receive_rows(connection, source, [row])]

    def _store_progress(self, connection: Connection, state: LocationState, reason: str | None = None) -> None:
        self.state = state
        progress = LocationProgress(
            location_id=self.location.location_id,
            state=state,
            reason=reason,
            rows=self.counts["published"],
            suspended=self.counts["suspended"],
            rate=self._rate.per_second(),
            last_batch_at=self._last_batch_at,
        )
        self._report.store(connection, progress)
