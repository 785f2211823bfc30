"""A receive location whose adapter runs in a host: the host polls it, publishes each batch, and has it cleaned up.

Each interchange has a receipt, which is derived from its key at the source. An interchange that comes again, because
the process ended before it was cleaned up, is only cleaned up.

If the process that served the location before was killed, the first batch may contain what killed it. So its
interchanges are processed alone, and one that has killed several processes is suspended (agent/poison_messages.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from postroom.adapters.contract import Incoming, ReceiveAdapter
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.receiver import Receiver
from postroom.clock import Clock, system_clock
from postroom.errors import MessageBoxUnavailable, PostroomError
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.intake.location_lock import LocationLock
from postroom.messagebox.intake.location_progress import LocationReport, LocationState, was_killed
from postroom.messagebox.intake.numbered_interchanges import delete_location_attempts
from postroom.messagebox.throttling.load import ThrottleWatch
from postroom.ports.receive_locations import ReceiveLocation, find_receive_location
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.receiving.location_meter import LocationMeter
from postroom.receiving.location_runner import Running
from postroom.receiving.task import MILLISECONDS, OUTCOMES, ReceiveTask, Worker, count_outcomes
from postroom.throttling.process_load import find_process_limits

_log = logging.getLogger(__name__)

#: The time between two checks whether another process has released the location, or its schedule has opened.
_STANDBY_SECONDS = 1.0
_BACKOFF = Backoff(first=0.5, longest=5.0)


class PolledLocation(Running):
    """Serves one location in the thread of its loop. One process at a time serves a location."""

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
        self.meter = LocationMeter(location.location_id, clock)
        #: None while another process serves the location, or none.
        self.state: LocationState | None = None
        self._clock = clock
        self.adapter: ReceiveAdapter = location.adapter.make_receiver(home)
        self._connect = connect
        self._connection = LazyConnection(connect)
        #: True for the first batch after the process before this one was killed.
        self._is_isolated = False
        self._lock: LocationLock | None = None
        self._routing = routing
        self._throttle = ThrottleWatch(location.host_id, find_process_limits)
        self._report = LocationReport()
        self.loop = BackgroundLoop(f"receiving of {location.name}", self.step, backoff=_BACKOFF)

    def stop(self) -> None:
        """Stop after the current batch."""
        self.loop.stop()
        self.loop.join()
        self.close()

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
            reason = " ".join(str(error).split()) or type(error).__name__
            self._store_progress(connection, LocationState.FAILING, reason)
            raise
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
        if find_receive_location(connection, self.location.location_id) != self.location:
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
        before = self.meter.counts["files"]
        if batch:
            self._receive_batch(connection, batch)
        self._store_progress(connection, LocationState.RECEIVING)
        # A source that returns only what it returned before is not polled without a pause.
        return 0.0 if self.meter.counts["files"] > before else self.location.adapter.polling_interval

    def _receive_batch(self, connection: Connection, batch: Sequence[Incoming]) -> None:
        """Publish a batch, and have it cleaned up."""
        receiver = Receiver(connection, self._routing, clock=self._clock)
        task = ReceiveTask(
            location=self.location,
            adapter=self.adapter,
            worker=Worker(connection=connection, receiver=receiver, connect=self._connect),
            paced=True,
            process="host process",
            leaves_failures=True,
            report=self._count,
        )
        is_isolated, self._is_isolated = self._is_isolated, False
        try:
            task.receive(batch, isolated=is_isolated)
            if is_isolated:
                delete_location_attempts(connection, self.location.location_id)
        except MessageBoxUnavailable:
            self.adapter.release(batch)
            raise

    def _count(self, received: Sequence[ReceiveResult]) -> None:
        """Count what is new. A repeat was only cleaned up."""
        counts = (count_outcomes([result]) for result in received)
        for milliseconds, counted in ((counted.pop(MILLISECONDS), counted) for counted in counts):
            if any(counted[name] for name in OUTCOMES if name != "files"):
                self.meter.add(counted, milliseconds=milliseconds)

    def _store_progress(self, connection: Connection, state: LocationState, reason: str | None = None) -> None:
        self.state = state
        self._report.store(connection, self.meter.build_progress(state, reason))
