"""Polls the queue of one service class and feeds its threads."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import timedelta

from postroom.clock import Clock
from postroom.hosts.loop import Loop
from postroom.hosts.service import Service
from postroom.hosts.thread_connections import Connect, LazyConnection
from postroom.hosts.work_in_hand import WorkInHand
from postroom.messagebox.configuration import Dequeuing
from postroom.messagebox.queues import HostQueues

#: Publishers wake a host at most this often (agent/wake_up.py), so a woken host goes on looking for a little.
_AFTER_WAKE_UP = 0.03
_PATIENCE = 1.0


class Poller:
    """Claims batches as long as there are any; then waits for a wake-up or the polling interval."""

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        host_instance: int,
        dequeuing: Dequeuing,
        service: Service,
        work: WorkInHand,
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._host_instance = host_instance
        self._service_class = int(dequeuing.service_class)
        self._interval = dequeuing.polling_interval
        self._service = service
        self._work = work
        self._clock = clock
        self._wake = threading.Event()
        self._woken_at = 0.0
        self._in_doubt: uuid.UUID | None = None
        self.loop = Loop(f"poll {dequeuing.service_class.name.lower()}", self._step, interrupt=self.wake)

    def wake(self) -> None:
        """There may be something to do."""
        self._woken_at = time.monotonic()
        self._wake.set()

    def due_in(self, delay: timedelta) -> None:
        """Something was scheduled: what is due before the next regular poll is not to wait for it."""
        if delay <= self._interval:
            self.wake()

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> None:
        room, generation = self._work.wait_for_room(_PATIENCE)
        if room and not self.loop.stopping:
            self._wake.clear()
            if not self._poll(room, generation):
                just_woken = time.monotonic() - self._woken_at < _AFTER_WAKE_UP
                self._wake.wait(_AFTER_WAKE_UP if just_woken else self._interval.total_seconds())

    def _poll(self, room: int, generation: int) -> bool:
        """Whether anything was claimed."""
        connection = self._connection.get()
        if self._in_doubt is not None:
            # The answer to a claim was lost, or came when nobody might have it any more. Nobody has seen its messages.
            self._queues.release(connection, self._in_doubt)
            self._in_doubt = None
        now = self._clock() if self._clock else None
        _, routing_version = self._queues.release_due(connection, 10 * room, now)
        self._in_doubt = claim_id = uuid.uuid4()
        claimed = self._queues.dequeue(
            connection,
            claim_id=claim_id,
            host_instance=self._host_instance,
            service_class=self._service_class,
            limit=room,
        )
        if claimed:
            self._service.prepare(connection, routing_version, claimed)
            if not self._work.put(claimed, generation):
                return True
        self._in_doubt = None
        return bool(claimed)
