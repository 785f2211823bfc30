"""The messages that a host instance has claimed and has in memory: queued for a thread, or in progress in a thread.

The poller adds messages, the dequeue threads take them, and the completer reports them finished. When the instance
loses its lock, the queued messages are dropped at once, and threads get no message until the instance has the lock
again.

While slow services occupy all dequeue threads (slow_services.py), the messages of other services are diverted to the
spare threads, in a queue of their own.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from postroom.application import Handler
from postroom.messagebox.queues import MAX_AHEAD, ClaimedMessage


class WorkBuffer:
    """A bounded queue in memory that also tracks the messages that were taken from it and are not finished.

    Threads take a queued message without the lock, because a lock costs more per message than the rest of ``take``.
    ``deque.popleft`` is atomic: a message belongs to the thread, or to ``pause``, that popped it.
    """

    def __init__(self, capacity: int) -> None:
        # Two halves: the threads work on one while the poller fetches the other. The poller never claims less than a
        # half, because polling for single messages costs more than it gains.
        self._half = max(1, capacity // 2)
        self._lock = threading.Lock()
        self._has_messages = threading.Condition(self._lock)
        self._has_space = threading.Condition(self._lock)
        self._is_empty = threading.Condition(self._lock)
        self._all_finished = threading.Condition(self._lock)
        self._has_diverted = threading.Condition(self._lock)
        self._queued: deque[ClaimedMessage] = deque()
        self._diverted: deque[ClaimedMessage] = deque()
        self._slow_services: frozenset[bytes | None] = frozenset()
        self._handlers: Mapping[bytes, Handler] = {}
        self._above_watermark: set[Handler] = set()
        # Capacity that claimers have reserved and not filled yet. Two claimers work at the same time.
        self._reserved = 0
        # A claimer waits until no more than this number of messages is queued; -1 if no claimer waits.
        self._notify_at = -1
        self._unfinished: set[int] = set()
        #: Called when messages are added and all others are finished.
        self.on_work: Callable[[], None] = lambda: None
        #: The number of messages that were added, and of those that are finished or were dropped, since the start.
        self.claimed_count, self.finished_count = 0, 0
        self._generation = 0
        self._paused = True
        self._closed = False

    # -- called by the poller ----------------------------------------------------------------------------------

    def wait_for_capacity(self, timeout: float, *, when_empty: bool = False) -> tuple[int, int]:
        """Reserve capacity. Return the number of messages that may be added, and the generation to add them with.

        There is capacity when half of the buffer is free, or, with ``when_empty``, when no message is queued. There is
        none while the buffer is paused. The caller returns the capacity with ``release_capacity`` after its claim.
        """
        limit, changed = (0, self._is_empty) if when_empty else (self._half, self._has_space)
        with self._lock:
            # Set before the check, so that a thread that takes a message after the check notifies.
            self._notify_at = max(self._notify_at, limit)
            if not self._has_capacity(limit) and not self._closed:
                changed.wait(timeout)
            capacity = self._half if self._has_capacity(limit) else 0
            self._reserved += capacity
            return capacity, self._generation

    def release_capacity(self, capacity: int) -> None:
        """Return reserved capacity, whether or not it was filled."""
        with self._lock:
            self._reserved -= capacity
            self._has_space.notify()
            self._is_empty.notify()

    def _has_capacity(self, limit: int) -> bool:
        if self._paused or self._closed:
            return False
        waiting = len(self._diverted if self._is_full_of_slow_messages() else self._queued)
        in_progress = len(self._unfinished) - len(self._queued) - len(self._diverted) - self._count_blocked()
        # Messages whose outcome is not stored yet count too: a slow MessageBox must slow down the threads.
        return waiting <= limit and waiting + self._reserved <= self._half and in_progress <= 4 * self._half

    def _count_blocked(self) -> int:
        """Return the number of messages that are buffered but not queued yet. Called under the lock."""
        return 0

    def _is_full_of_slow_messages(self) -> bool:
        return bool(self._slow_services) and len(self._queued) > self._half

    def set_handlers(self, handlers: Mapping[bytes, Handler]) -> None:
        """Set the handler of each send port. Its watermarks limit the messages of its slow ports in memory."""
        self._handlers = handlers

    @property
    def excluded_services(self) -> list[bytes]:
        """The services that a claim skips: slow services that already use their part of the buffer.

        These are all slow services if their messages fill it. Otherwise they are those of a handler that has reached
        its high watermark, until it is below its low watermark (DEQ-17).
        """
        slow = self._slow_services
        if not slow:
            return []
        if self._is_full_of_slow_messages():
            return [service for service in slow if service is not None]
        handlers, above = self._handlers, self._above_watermark
        handled = {service: handlers[service] for service in slow if service is not None and service in handlers}
        # A copy, because threads take messages meanwhile.
        counts = Counter(handled.get(message.service) for message in list(self._queued) if message.service is not None)
        self._above_watermark = {
            handler
            for handler in handled.values()
            if counts[handler] >= (handler.low_watermark if handler in above else handler.high_watermark)
        }
        return [service for service, handler in handled.items() if handler in self._above_watermark]

    @property
    def ahead(self) -> int:
        """The number of messages of each ordered send port that the next claim may take."""
        return MAX_AHEAD

    def put(self, claimed: Sequence[ClaimedMessage], generation: int) -> bool:
        """Add messages. Return False, and add nothing, if the buffer was paused since the generation was read."""
        with self._lock:
            if self._paused or self._generation != generation:
                return False
            self._add_unfinished(claimed)
            self._enqueue(claimed)
            return True

    def _add_unfinished(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Track messages until they are finished. Called under the lock."""
        was_finished = not self._unfinished
        self._unfinished.update([message.seq for message in claimed])
        self.claimed_count += len(claimed)
        if was_finished and claimed:
            self.on_work()

    def _enqueue(self, messages: Sequence[ClaimedMessage]) -> None:
        """Queue messages for the dequeue threads, or for the spare threads. Called under the lock."""
        if self._slow_services:
            diverted = [message for message in messages if message.service not in self._slow_services]
            messages = [message for message in messages if message.service in self._slow_services]
            self._diverted.extend(diverted)
            self._has_diverted.notify(len(diverted))
        self._queued.extend(messages)
        self._has_messages.notify(len(messages))

    # -- called by the dequeue threads -------------------------------------------------------------------------

    def take(self) -> ClaimedMessage | None:
        """Return the next message, or None after ``close``. Wait while no message is queued."""
        while True:
            try:
                taken = self._queued.popleft()
            except IndexError:
                if not self._wait_for_messages():
                    return None
                continue
            if len(self._queued) <= self._notify_at:
                self._notify_claimers()
            return taken

    def take_more(self, first: ClaimedMessage, limit: int, threads: int) -> list[ClaimedMessage]:
        """Return up to ``limit`` messages that follow ``first`` and have the same service and task. Do not wait.

        Each of the ``threads`` that take messages is left its share of the queued messages.
        """
        taken: list[ClaimedMessage] = []
        limit = min(limit, len(self._queued) // threads)
        while len(taken) < limit:
            try:
                message = self._queued.popleft()
            except IndexError:
                break
            if (message.service, message.task) != (first.service, first.task):
                with self._lock:
                    self._queued.appendleft(message)
                    self._has_messages.notify()  # a thread that found no message in the meantime waits
                break
            taken.append(message)
        if taken and len(self._queued) <= self._notify_at:
            self._notify_claimers()
        return taken

    def _wait_for_messages(self) -> bool:
        """Wait until a message is queued, which another thread may take first. Return False after ``close``."""
        with self._lock:
            while not self._queued and not self._closed:
                self._has_messages.wait()
            return bool(self._queued)

    def take_diverted(self) -> ClaimedMessage | None:
        """Return the next message for a spare thread, or None after ``close``. Wait while there is none."""
        with self._lock:
            while not self._diverted:
                if self._closed:
                    return None
                self._has_diverted.wait()
            taken = self._diverted.popleft()
            self._has_space.notify()
            if not self._diverted:
                self._is_empty.notify()
            return taken

    def _notify_claimers(self) -> None:
        with self._lock:
            self._has_space.notify()
            if self._queued:
                self._notify_at = 0
            else:
                self._notify_at = -1
                self._is_empty.notify()

    def hand_over(self, handled: ClaimedMessage) -> None:
        """Queue the message that waited until this one was handled, if any."""

    # -- called by the completer -------------------------------------------------------------------------------

    def finish(self, seqs: Sequence[int]) -> None:
        """Forget these messages: their outcomes are stored."""
        with self._lock:
            self._unfinished.difference_update(seqs)
            self.finished_count += len(seqs)
            self._has_space.notify()
            self._is_empty.notify()
            if not self._unfinished:
                self._all_finished.notify_all()

    # -- called by the watcher of slow services ----------------------------------------------------------------

    def divert(self, slow_services: frozenset[bytes | None]) -> None:
        """Divert the messages of all other services to the spare threads, or none if no service is slow."""
        with self._lock:
            if slow_services == self._slow_services:
                return
            self._slow_services = slow_services
            self._enqueue(self._drain())
            self._has_space.notify()
            self._is_empty.notify()

    def _drain(self) -> list[ClaimedMessage]:
        """Remove and return the messages that no thread has taken, under the lock."""
        drained = []
        for queue in (self._diverted, self._queued):
            while queue:
                with suppress(IndexError):  # a thread has taken it first
                    drained.append(queue.popleft())
        return drained

    # -- called by the host instance ---------------------------------------------------------------------------

    def pause(self) -> list[ClaimedMessage]:
        """Give out no message until ``unpause``. Drop and return the queued messages."""
        with self._lock:
            self._paused = True
            self._generation += 1
            dropped = self._drain()
            dropped += self._drop_blocked(dropped)
            self._unfinished.difference_update([message.seq for message in dropped])
            self.finished_count += len(dropped)
            if not self._unfinished:
                self._all_finished.notify_all()
            return dropped

    def _drop_blocked(self, dropped: Sequence[ClaimedMessage]) -> list[ClaimedMessage]:
        """Drop and return the messages that are buffered but not queued yet. Called under the lock."""
        return []

    def unpause(self) -> None:
        with self._lock:
            self._paused = False
            self._has_space.notify()
            self._is_empty.notify()

    def close(self) -> None:
        """Let the threads exit once the queue is empty."""
        with self._lock:
            self._closed = True
            self._has_messages.notify_all()
            self._has_diverted.notify_all()
            self._has_space.notify()
            self._is_empty.notify()

    def wait_until_finished(self, timeout: float) -> bool:
        """Wait until every message is finished. Return False after the timeout."""
        with self._lock:
            return self._all_finished.wait_for(lambda: not self._unfinished, timeout)

    @property
    def is_finished(self) -> bool:
        """True if every message is finished."""
        return not self._unfinished

    @property
    def unfinished_count(self) -> int:
        """The number of messages that are in memory and not finished."""
        return len(self._unfinished)

    @property
    def unfinished_seqs(self) -> list[int]:
        """The sequence numbers of the messages that are in memory and not finished."""
        with self._lock:
            return list(self._unfinished)
