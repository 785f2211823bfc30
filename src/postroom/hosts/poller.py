"""Polls the queue of one service class and feeds its threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from postroom.hosts.claimer import Claimer
from postroom.hosts.loop import Loop
from postroom.hosts.work_in_hand import WorkInHand
from postroom.messagebox.configuration import Dequeuing

#: Publishers wake a host at most this often (agent/wake_up.py), so a woken host goes on looking for a little.
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
        self._wake = threading.Event()
        self._woken_at = 0.0
        self._backlog = threading.Event()
        name = dequeuing.service_class.name.lower()
        self._loops = (
            Loop(f"poll {name}", self._poll, interrupt=self._wake.set),
            Loop(f"help {name}", self._help, interrupt=self._backlog.set),
        )

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
        return self._loops[0].stopping

    def wake(self) -> None:
        """There may be something to do."""
        self._woken_at = time.monotonic()
        self._wake.set()

    def due_in(self, delay: timedelta) -> None:
        """Something was scheduled: what is due before the next regular poll is not to wait for it."""
        if delay <= self._interval:
            self.wake()

    def _poll(self) -> None:
        room, generation = self._work.wait_for_room(_PATIENCE)
        if room and not self.stopping:
            self._wake.clear()
            claimed = self._claimer.claim(room, generation)
            if claimed == room:
                self._backlog.set()
            elif claimed == 0:
                just_woken = time.monotonic() - self._woken_at < _AFTER_WAKE_UP
                self._wake.wait(_AFTER_WAKE_UP if just_woken else self._interval.total_seconds())

    def _help(self) -> None:
        if self._backlog.wait(_PATIENCE):
            room, generation = self._work.wait_for_room(_PATIENCE, when_empty=True)
            if room and not self.stopping and self._helper.claim(room, generation) < room:
                self._backlog.clear()
