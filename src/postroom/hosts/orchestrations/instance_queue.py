"""The claimed instances of a host instance in memory. Threads take several at a time, and store them together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from postroom.hosts.orchestrations.instance import Instance

#: The number of instances that a thread takes at most.
_MAX_BATCH = 100


class InstanceQueue:
    """Instances that were just claimed, and those that have more to do after a persistence point.

    ``capacity`` is the number of instances that are claimed ahead. ``on_capacity`` is called when half of it is free.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.on_capacity: Callable[[], None] = lambda: None
        self._instances: deque[Instance] = deque()
        self._changed = threading.Condition()
        #: The number of threads that wait for instances.
        self.waiting_threads = 0
        self._threads_to_end = 0

    def __len__(self) -> int:
        return len(self._instances)

    def put(self, instances: Iterable[Instance]) -> None:
        with self._changed:
            before = len(self._instances)
            self._instances.extend(instances)
            self._changed.notify(len(self._instances) - before)

    def end_threads(self, count: int) -> None:
        """Let ``count`` threads end after their batch."""
        with self._changed:
            self._threads_to_end += count
            self._changed.notify_all()

    def take(self) -> list[Instance]:
        """Wait for instances, and take the share of one of the threads that wait now. A step may take long, so an
        instance that runs one next is taken alone. Return an empty list if the thread has to end."""
        with self._changed:
            self.waiting_threads += 1
            while not self._instances and not self._threads_to_end:
                self._changed.wait()
            waiting_threads, self.waiting_threads = self.waiting_threads, self.waiting_threads - 1
            if self._threads_to_end:
                self._threads_to_end -= 1
                return []
            share = min(_MAX_BATCH, -(-len(self._instances) // waiting_threads))
            taken = [self._instances.popleft()]
            while not taken[0].runs_step and len(taken) < share and not self._instances[0].runs_step:
                taken.append(self._instances.popleft())
            has_capacity = len(self._instances) <= self.capacity // 2
        if has_capacity:
            self.on_capacity()
        return taken

    def discard(self) -> None:
        """Drop all instances. Their claims stay, until the caller releases them."""
        with self._changed:
            dropped = list(self._instances)
            self._instances.clear()
        for instance in dropped:
            instance.close()
