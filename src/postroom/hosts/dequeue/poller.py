"""Polls the queue of one service class and fills the buffer that its threads take messages from."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from postroom.background_loop import BackgroundLoop
from postroom.clock import Clock
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.configuration import Dequeuing, ServiceClass
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.queues import ClaimedMessage, HostQueues

#: Publishers wake a host at most this often (messagebox/queues.py), so a woken host keeps polling for a moment.
_AFTER_WAKE_UP = 0.03
_TIMEOUT = 1.0


class Claimer:
    """Claims batches over one connection, one claim at a time.

    A claim whose answer was lost, or came too late, is released before the next claim.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        host_instance: int,
        service_class: ServiceClass,
        service: Service,
        buffer: WorkBuffer,
        in_order: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._host_instance = host_instance
        self._service_class = int(service_class)
        self._service = service
        self._buffer = buffer
        self._in_order = in_order
        self._clock = clock
        self._in_doubt: uuid.UUID | None = None

    def claim(self, capacity: int, generation: int) -> int:
        """Claim up to ``capacity`` messages, which the caller has reserved. Return the number of claimed messages."""
        try:
            claimed = self._dequeue(capacity)
            if self._buffer.put(claimed, generation):
                self._in_doubt = None
            return len(claimed)
        finally:
            self._buffer.release_capacity(capacity)

    def close(self) -> None:
        self._connection.close()

    def _dequeue(self, limit: int) -> list[ClaimedMessage]:
        connection = self._connection.get()
        if self._in_doubt is not None:
            # No thread got its messages.
            self._queues.release(connection, self._in_doubt)
        self._in_doubt = uuid.uuid4()
        claimed = self._queues.dequeue(
            connection,
            claim_id=self._in_doubt,
            host_instance=self._host_instance,
            service_class=self._service_class,
            limit=limit,
            in_order=self._in_order,
            now=self._clock() if self._clock else None,
        )
        if claimed:
            self._service.prepare(connection, claimed)
        return claimed


class Poller:
    """Claims batches while there are messages, then waits for a wake-up or for the polling interval.

    A second claimer helps while there is a backlog and the threads are idle: one claimer waits for the disk while the
    other one claims.
    """

    def __init__(self, dequeuing: Dequeuing, buffer: WorkBuffer, new_claimer: Callable[[], Claimer]) -> None:
        self._interval = dequeuing.polling_interval
        self._buffer = buffer
        self._claimer, self._helper = new_claimer(), new_claimer()
        self._woken_at = 0.0
        self._has_backlog = False
        name = dequeuing.service_class.name.lower()
        self._polling = BackgroundLoop(f"poll {name}", self._poll)
        self._helping = BackgroundLoop(f"help {name}", self._help)
        self._loops = (self._polling, self._helping)

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Stop claiming. Return at once."""
        for loop in self._loops:
            loop.stop()

    def join(self, deadline: float) -> None:
        """Wait for the loops to end, until the deadline but at least a second, and close the connections."""
        for loop in self._loops:
            loop.join(max(1.0, deadline - time.monotonic()))
        self._claimer.close()
        self._helper.close()

    @property
    def stopping(self) -> bool:
        return self._polling.stopping

    def wake(self) -> None:
        """Poll now: there may be messages."""
        self._woken_at = time.monotonic()
        self._polling.wake()

    def wake_if_due_within(self, delay: timedelta) -> None:
        """Poll now if a message was scheduled that is due before the next regular poll."""
        if delay <= self._interval:
            self.wake()

    def _poll(self) -> float:
        capacity, generation = self._buffer.wait_for_capacity(_TIMEOUT)
        if capacity and not self.stopping:
            claimed = self._claimer.claim(capacity, generation)
            if claimed == capacity:
                self._has_backlog = True
                self._helping.wake()
            elif claimed == 0:
                just_woken = time.monotonic() - self._woken_at < _AFTER_WAKE_UP
                return _AFTER_WAKE_UP if just_woken else self._interval.total_seconds()
        return 0.0

    def _help(self) -> float:
        if not self._has_backlog:
            return _TIMEOUT
        capacity, generation = self._buffer.wait_for_capacity(_TIMEOUT, when_empty=True)
        if capacity and not self.stopping and self._helper.claim(capacity, generation) < capacity:
            self._has_backlog = False
        return 0.0
