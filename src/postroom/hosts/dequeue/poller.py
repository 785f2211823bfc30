"""Polls the queue of one service class and feeds its threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from postroom.background_loop import BackgroundLoop
from postroom.hosts.dequeue.claimer import Claimer
from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.configuration import Dequeuing

#: Publishers wake a host at most this often (messagebox/queues.py), so a woken host goes on looking for a little.
_AFTER_WAKE_UP = 0.03
_PATIENCE = 1.0


class Poller:
    """Claims batches as long as there are any; then waits for a wake-up or the polling interval.

    While there is a backlog and the threads have nothing left to do, a second claimer helps: one waits for the disk
    while the other one claims.
    """

    def __init__(self, dequeuing: Dequeuing, work: WorkInHand, new_claimer: Callable[[], Claimer]) -> None:
        self._interval = dequeuing.polling_interval
        self._work = work
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
        """Asks it to claim nothing more."""
        for loop in self._loops:
            loop.stop()

    def join(self, deadline: float) -> None:
        """Waits for its end, to the deadline or a second, and closes its connections."""
        for loop in self._loops:
            loop.join(max(1.0, deadline - time.monotonic()))
        self._claimer.close()
        self._helper.close()

    @property
    def stopping(self) -> bool:
        return self._polling.stopping

    def wake(self) -> None:
        """There may be something to do."""
        self._woken_at = time.monotonic()
        self._polling.wake()

    def due_in(self, delay: timedelta) -> None:
        """Something was scheduled: what is due before the next regular poll is not to wait for it."""
        if delay <= self._interval:
            self.wake()

    def _poll(self) -> float:
        room, generation = self._work.wait_for_room(_PATIENCE)
        if room and not self.stopping:
            claimed = self._claimer.claim(room, generation)
            if claimed == room:
                self._has_backlog = True
                self._helping.wake()
            elif claimed == 0:
                just_woken = time.monotonic() - self._woken_at < _AFTER_WAKE_UP
                return _AFTER_WAKE_UP if just_woken else self._interval.total_seconds()
        return 0.0

    def _help(self) -> float:
        if not self._has_backlog:
            return _PATIENCE
        room, generation = self._work.wait_for_room(_PATIENCE, when_empty=True)
        if room and not self.stopping and self._helper.claim(room, generation) < room:
            self._has_backlog = False
        return 0.0
