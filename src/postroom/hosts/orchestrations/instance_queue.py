"""The claimed instances of a host instance in memory. Threads take several at a time, and store them together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from postroom.hosts.orchestrations.driven_instance import DrivenInstance
from postroom.messagebox.orchestrations import ClaimedInstance
from postroom.messagebox.queues import ClaimedMessage

#: The number of instances that a thread takes at most.
_MAX_BATCH = 100


@dataclass(frozen=True, kw_only=True)
class NewWork:
    """An instance that was just claimed, with the first messages that it has not received."""

    claimed: ClaimedInstance
    messages: list[ClaimedMessage]


#: An instance that was just claimed, or one that has more to do after a persistence point.
Work = NewWork | DrivenInstance


class InstanceQueue:
    """``capacity`` is the number of instances that are claimed ahead. ``on_capacity`` is called when half of it is
    free."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.on_capacity: Callable[[], None] = lambda: None
        self._work: deque[Work] = deque()
        self._changed = threading.Condition()
        #: The number of threads that wait for instances.
        self.waiting_threads = 0
        self._threads_to_end = 0

    def __len__(self) -> int:
        return len(self._work)

    def put(self, work: Iterable[Work]) -> None:
        with self._changed:
            before = len(self._work)
            self._work.extend(work)
            self._changed.notify(len(self._work) - before)

    def end_threads(self, count: int) -> None:
        """Let ``count`` threads end after their batch."""
        with self._changed:
            self._threads_to_end += count
            self._changed.notify_all()

    def take(self) -> list[Work]:
        """Wait for instances, and take the share of one of the threads that wait now. A step may take long, so an
        instance that runs one next is taken alone. Return an empty list if the thread has to end."""
        with self._changed:
            self.waiting_threads += 1
            while not self._work and not self._threads_to_end:
                self._changed.wait()
            waiting_threads, self.waiting_threads = self.waiting_threads, self.waiting_threads - 1
            if self._threads_to_end:
                self._threads_to_end -= 1
                return []
            share = min(_MAX_BATCH, -(-len(self._work) // waiting_threads))
            taken = [self._work.popleft()]
            while not _runs_step(taken[0]) and len(taken) < share and not _runs_step(self._work[0]):
                taken.append(self._work.popleft())
            has_capacity = len(self._work) <= self.capacity // 2
        if has_capacity:
            self.on_capacity()
        return taken

    def discard(self) -> None:
        """Drop all instances. Their claims stay, until the caller releases them."""
        with self._changed:
            dropped = list(self._work)
            self._work.clear()
        for work in dropped:
            if isinstance(work, DrivenInstance):
                work.close()


def _runs_step(work: Work) -> bool:
    return isinstance(work, DrivenInstance) and work.runs_step
