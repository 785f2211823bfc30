"""Keep slow services from occupying all dequeue threads while other services have messages.

A service, for example a send port, is slow while a thread needs more than INTERVAL seconds for each of its messages.
When messages of slow services occupy all dequeue threads, the messages of the other services go to a spare thread, and
claims skip the slow services whose messages fill the memory queue or have reached the high watermark of their handler.
Another spare thread starts when slow services occupy the spare threads too, up to the number of dequeue threads.

The threads only note their current message, because everything else would cost time for every message.
"""

from __future__ import annotations

from collections.abc import Sequence

from postroom.hosts.dequeue.dequeue_thread import DequeueThread
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.queues import ClaimedMessage
from postroom.processes.background_loop import BackgroundLoop

INTERVAL = 0.1
_IDLE_SECONDS = 60.0


class SlowServiceWatcher:
    """Compares the messages in progress with those of the last check, and diverts messages to spare threads."""

    def __init__(
        self,
        name: str,
        *,
        buffer: WorkBuffer,
        threads: Sequence[DequeueThread],
        spare_threads: Sequence[DequeueThread],
    ) -> None:
        self._buffer = buffer
        self._threads = threads
        self._unstarted = list(spare_threads)
        #: The spare threads that have been needed so far.
        self.started_threads: list[DequeueThread] = []
        # The messages in progress in each thread, and the number of checks that found them.
        self._seen: list[tuple[Sequence[ClaimedMessage], int]] = []
        self._idle = False
        self.loop = BackgroundLoop(name, self._step)
        buffer.on_work = self._wake

    def _wake(self) -> None:
        if self._idle:
            self.loop.wake()

    def _step(self) -> float:
        self._idle = False
        current = [thread.current for thread in (*self._threads, *self.started_threads)]
        new = [((), 0)] * (len(current) - len(self._seen))
        self._seen = [
            (messages, checks + 1 if messages is last else 1)
            for messages, (last, checks) in zip(current, [*self._seen, *new], strict=True)
        ]
        slow = frozenset(messages[0].service for messages, checks in self._seen if messages and checks > len(messages))
        is_slow = [bool(messages) and messages[0].service in slow for messages in current]
        if not all(is_slow[: len(self._threads)]):
            slow = frozenset()
        self._buffer.divert(slow)
        if all(is_slow) and self._unstarted:
            thread = self._unstarted.pop(0)
            thread.start()
            self.started_threads.append(thread)
        self._idle = self._buffer.is_finished
        # Check again, because a claimer may have read the flag just before it was set.
        return _IDLE_SECONDS if self._idle and self._buffer.is_finished else INTERVAL
