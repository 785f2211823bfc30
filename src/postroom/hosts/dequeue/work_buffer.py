"""The messages that a host instance has claimed and has in memory: queued for a thread, in progress in a thread, or
sent and waiting for their receiver.

The poller adds messages, the dequeue threads take them, and the completer reports them finished. When the instance
loses its lock, the queued messages are dropped at once, and threads get no message until the instance has the lock
again.

Messages are taken in the order in which they were added, but the messages in progress are limited:

- Of the messages that share an instance, for example those of an ordered send port, one at a time is in progress. The
  next one follows as soon as its predecessor is handled, and outcomes are stored in groups: after a crash, messages
  that were sent already are sent again, in order. If the predecessor failed, the messages that were claimed with it
  are refused, and the MessageBox keeps the order from there on (claim_ordered_messages).
- A caller gets one response. Its responses are processed one after the other: the first completes the caller, and the
  second finds none and is suspended.
- A service, for example a send port, is slow while one of its messages is in progress for more than INTERVAL seconds.
  When slow services occupy as many threads as there are dequeue threads, spare threads serve the others, one message
  of each service at a time. Claims skip the slow services whose messages fill the memory queue or have reached the
  high watermark of their handler.
- A service may have a limit (send_slots.py). Its messages occupy no thread while they wait for their receiver. A
  service at its limit, with more messages in memory, is slow too.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from postroom.application import Handler
from postroom.hosts.dequeue.processing import UNLIMITED, Limits, WaitingSend
from postroom.hosts.dequeue.send_slots import SendSlots
from postroom.messagebox.queues import MAX_AHEAD, ClaimedMessage, QueueTask

#: A service is slow if one of its messages is in progress for more seconds.
INTERVAL = 0.1
#: The tasks of messages that share their instance with others.
_SHARED_INSTANCE = (QueueTask.JOIN_INSTANCE, QueueTask.DELIVER_IN_ORDER)


def shares_instance(message: ClaimedMessage) -> bool:
    """Return True if other messages of the same instance wait for this one."""
    return message.task in _SHARED_INSTANCE


class SentMessages(tuple[ClaimedMessage, ...]):
    """Messages that were sent. A thread takes them again when their receiver has answered, to finish them."""

    send: WaitingSend
    #: When the attempt began.
    started: float


class WorkBuffer:
    """A bounded queue in memory that also tracks the messages that were taken from it and are not finished.

    ``threads`` is the number of dequeue threads. ``get_limits`` returns how many messages with the same service and
    task a thread may take together with a message, itself included, and how many of its service may be sent at a time.
    All services with such a limit have ``slots`` together.
    """

    def __init__(
        self,
        capacity: int,
        threads: int,
        get_limits: Callable[[ClaimedMessage], Limits] = lambda first: UNLIMITED,
        get_time: Callable[[], float] = time.monotonic,
        *,
        slots: int = 1_000,
    ) -> None:
        # Two halves: the threads work on one while the poller fetches the other. The poller never claims less than a
        # half, because polling for single messages costs more than it gains.
        self._half = max(1, capacity // 2)
        self._threads = threads
        # How many dequeue threads, and how many spare threads, have to end.
        self._surplus, self._surplus_spares = 0, 0
        self._get_limits = get_limits
        self._get_time = get_time
        self._lock = threading.Lock()
        self._has_messages = threading.Condition(self._lock)
        self._has_space = threading.Condition(self._lock)
        self._is_empty = threading.Condition(self._lock)
        self._all_finished = threading.Condition(self._lock)
        self._all_busy = threading.Condition(self._lock)
        self._queued: deque[ClaimedMessage] = deque()
        # By instance that has a message in the queue or in progress, the messages that wait for it.
        self._blocked: dict[uuid.UUID, deque[ClaimedMessage]] = {}
        self._blocked_count = 0
        # What each thread works on, and since when. By the identity of the first message, because another claim of the
        # same message may be in progress after a pause.
        self._in_progress: dict[int, tuple[Sequence[ClaimedMessage], float]] = {}
        self._slots = SendSlots(slots)
        # What waits for its receiver, by the identity of the first message, and what the receiver has answered.
        self._sent: dict[int, SentMessages] = {}
        self._answered: deque[SentMessages] = deque()
        # True if a spare thread checks for slow services now and then.
        self._is_watched = False
        self._handlers: Mapping[bytes, Handler] = {}
        self._above_watermark: set[Handler] = set()
        # Capacity that claimers have reserved and not filled yet. Two claimers work at the same time.
        self._reserved = 0
        # A claimer waits until no more than this number of messages is queued; -1 if no claimer waits.
        self._notify_at = -1
        self._unfinished: set[int] = set()
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
            self._notify_claimers()

    def _notify_claimers(self) -> None:
        """Wake the claimers that the number of queued messages does not keep waiting."""
        if len(self._queued) <= self._notify_at:
            self._has_space.notify()
            if not self._queued:
                self._is_empty.notify()

    def _wake_claimers(self) -> None:
        """Let all claimers check again whether there is capacity."""
        self._has_space.notify()
        self._is_empty.notify()

    def _has_capacity(self, limit: int) -> bool:
        if self._paused or self._closed:
            return False
        slow, queued = self._count_slow(), len(self._queued) + self._slots.held_count
        waiting = queued - (slow if slow > self._half else 0)
        # Messages whose outcome is not stored yet count too: a slow MessageBox must slow down the threads.
        taken = len(self._unfinished) - queued - self._blocked_count - len(self._sent)
        return waiting <= limit and waiting + self._reserved <= self._half and taken <= 4 * self._half

    def _count_slow(self) -> int:
        """Return the number of queued messages of slow services."""
        slow = self._find_claimed_enough()
        return self._slots.held_count + sum(message.service in slow for message in self._queued) if slow else 0

    def _find_claimed_enough(self) -> set[bytes | None]:
        """Return the slow services, and those whose messages wait for a slot."""
        return self._find_slow_services().union(self._slots.held_services)

    def set_handlers(self, handlers: Mapping[bytes, Handler]) -> None:
        """Set the handler of each send port. Its watermarks limit the messages of its slow ports in memory."""
        self._handlers = handlers

    @property
    def excluded_services(self) -> list[bytes]:
        """The services that a claim skips: slow services that already use their part of the buffer.

        These are all slow services if their messages fill it. Otherwise they are those of a handler that has reached
        its high watermark, until it is below its low watermark (DEQ-17).
        """
        with self._lock:
            slow = [service for service in self._find_claimed_enough() if service is not None]
            if not slow or self._count_slow() > self._half:
                return slow
            queued = Counter(message.service for message in self._queued)
            for service in slow:
                queued[service] += self._slots.count_held(service)
        handlers, above = self._handlers, self._above_watermark
        handled = {service: handlers[service] for service in slow if service in handlers}
        counts: Counter[Handler] = Counter()
        for service, handler in handled.items():
            counts[handler] += queued[service]
        self._above_watermark = {
            handler
            for handler, count in counts.items()
            if count >= (handler.low_watermark if handler in above else handler.high_watermark)
        }
        return [service for service, handler in handled.items() if handler in self._above_watermark]

    @property
    def ahead(self) -> int:
        """The number of messages of each ordered send port that the next claim may take."""
        # Slow ports fill the memory queue. Then only the first message of each port is claimed: the others continue.
        return MAX_AHEAD if self._blocked_count < 2 * self._half else 1

    def put(self, claimed: Sequence[ClaimedMessage], generation: int) -> bool:
        """Add messages. Return False, and add nothing, if the buffer was paused since the generation was read."""
        with self._lock:
            if self._paused or self._generation != generation:
                return False
            self._unfinished.update([message.seq for message in claimed])
            self.claimed_count += len(claimed)
            self._enqueue([message for message in claimed if not shares_instance(message) or self._is_next(message)])
            return True

    def _is_next(self, message: ClaimedMessage) -> bool:
        """Return True if no message of the same instance precedes this one. Otherwise let it wait."""
        blocked = self._blocked.get(message.instance_id)
        if blocked is None:
            self._blocked[message.instance_id] = deque()
            return True
        blocked.append(message)
        self._blocked_count += 1
        return False

    def _enqueue(self, messages: Sequence[ClaimedMessage]) -> None:
        self._queued.extend(messages)
        self._has_messages.notify(len(messages))
        self._watch_if_busy()

    # -- called by the dequeue threads -------------------------------------------------------------------------

    def take(self) -> Sequence[ClaimedMessage]:
        """Return the next message, or several to process together. Wait while none is queued. Return nothing if the
        thread has to end: after ``close``, or because there are too many."""
        with self._lock:
            while not (batch := self._take_next()):
                if (self._closed and not self._sent) or self._surplus:
                    self._surplus = max(0, self._surplus - 1)
                    return ()
                self._has_messages.wait()
            self._start(batch)
            if len(self._queued) <= self._notify_at:
                self._notify_claimers()
                self._notify_at = 0 if self._queued else -1
            return batch

    def _take_next(self) -> Sequence[ClaimedMessage]:
        """Remove the next messages. Return nothing if there are none, or too many threads."""
        if self._surplus:
            return ()
        if self._answered:
            return self._answered.popleft()
        while self._queued:
            first = self._queued.popleft()
            batch_limit, sends = self._get_limits(first)
            if sends is not None and not self._slots.acquire(first, sends):
                self._slots.hold(first)
                self._wake_claimers()  # there may be capacity for other services
                continue
            batch = [first]
            if batch_limit > 1:
                self._fill(batch, batch_limit)
            return batch
        return ()

    def _fill(self, batch: list[ClaimedMessage], limit: int) -> None:
        """Add messages with the same service and task. Leave each dequeue thread its share of the queued messages."""
        first = batch[0]
        limit = min(limit, 1 + len(self._queued) // self._threads)
        while len(batch) < limit and (self._queued[0].service, self._queued[0].task) == (first.service, first.task):
            batch.append(self._queued.popleft())

    def take_spare(self) -> Sequence[ClaimedMessage]:
        """Return the next message for a spare thread. Wait while there is none. Return nothing if the thread has to
        end."""
        with self._lock:
            while not self._closed and not self._surplus_spares:
                if self._find_slow_services():
                    if batch := self._take_other():
                        self._all_busy.notify()  # another spare thread watches now
                        self._start(batch)
                        return batch
                    # There may be capacity for other services.
                    self._wake_claimers()
                self._is_watched = self._is_busy
                self._all_busy.wait(INTERVAL if self._is_watched else None)
            self._surplus_spares = max(0, self._surplus_spares - 1)
            return ()

    def _take_other(self) -> Sequence[ClaimedMessage]:
        """Remove messages whose receiver has answered, or the next message of a service that no thread works for."""
        if self._answered:
            return self._answered.popleft()
        busy = {batch[0].service for batch, _ in self._list_in_progress()}
        for position, message in enumerate(self._queued):
            if message.service not in busy:
                sends = self._get_limits(message).sends
                if sends is None or self._slots.acquire(message, sends):
                    del self._queued[position]
                    return [message]
        return ()

    def _start(self, batch: Sequence[ClaimedMessage]) -> None:
        """Note that a thread works on these messages."""
        self._in_progress[id(batch[0])] = batch, self._get_time()
        if not self._is_watched:
            self._watch_if_busy()

    def _watch_if_busy(self) -> None:
        """Let a spare thread watch if messages wait for the dequeue threads, and none watches yet."""
        if not self._is_watched and self._is_busy:
            self._is_watched = True
            self._all_busy.notify()

    @property
    def _is_busy(self) -> bool:
        return bool(self._queued or self._answered) and len(self._in_progress) >= self._threads

    def _find_slow_services(self) -> set[bytes | None]:
        """Return the slow services if they occupy as many threads as there are dequeue threads. Otherwise return an
        empty set."""
        now, in_progress = self._get_time(), self._list_in_progress()
        slow = {batch[0].service for batch, started in in_progress if now - started > INTERVAL * len(batch)}
        return slow if sum(batch[0].service in slow for batch, _ in in_progress) >= self._threads else set()

    def _list_in_progress(self) -> list[tuple[Sequence[ClaimedMessage], float]]:
        return list(self._in_progress.values())

    def end(self, batch: Sequence[ClaimedMessage], *, is_success: bool) -> Sequence[ClaimedMessage]:
        """Note that a thread has handled these messages. Return the messages that were claimed together with a message
        that failed, and that must not be handled because they share its instance."""
        handled = batch[0]
        if not shares_instance(handled) and not self._slots.has_slot(handled):
            del self._in_progress[id(handled)]  # one step of the interpreter, which needs no lock
            return ()
        with self._lock:
            del self._in_progress[id(handled)]
            if self._slots.has_slot(handled) and (following := self._slots.release(handled)):
                self._queued.extendleft(reversed(following))
                self._has_messages.notify(len(following))
                self._watch_if_busy()
            if not shares_instance(handled):
                return ()
            blocked, refused = self._blocked[handled.instance_id], []
            while not is_success and blocked and blocked[0].claim_id == handled.claim_id:
                refused.append(blocked.popleft())
            self._blocked_count -= len(refused)
            if blocked:
                self._blocked_count -= 1
                self._enqueue([blocked.popleft()])
            else:
                del self._blocked[handled.instance_id]
            return refused

    def wait(self, batch: SentMessages) -> None:
        """Note that these messages occupy no thread until their receiver has answered."""
        with self._lock:
            del self._in_progress[id(batch[0])]
            self._sent[id(batch[0])] = batch

    def resume(self, batch: SentMessages) -> None:
        """Let a thread finish these messages: their receiver has answered. It need not be unpaused."""
        with self._lock:
            del self._sent[id(batch[0])]
            self._answered.append(batch)
            if self._closed:
                self._has_messages.notify_all()  # the threads exit after the last one
            else:
                self._has_messages.notify()
            self._watch_if_busy()

    # -- called by the completer -------------------------------------------------------------------------------

    def finish(self, seqs: Sequence[int]) -> None:
        """Forget these messages: their outcomes are stored."""
        with self._lock:
            self._forget(seqs)
            self._notify_claimers()

    def _forget(self, seqs: Sequence[int]) -> None:
        self._unfinished.difference_update(seqs)
        self.finished_count += len(seqs)
        if not self._unfinished:
            self._all_finished.notify_all()

    # -- called by the host instance ---------------------------------------------------------------------------

    def pause(self) -> list[ClaimedMessage]:
        """Give out no message until ``unpause``. Drop and return the messages that no thread works on."""
        with self._lock:
            self._paused = True
            self._generation += 1
            dropped = [
                *self._queued,
                *self._slots.drop_held(),
                *(message for blocked in self._blocked.values() for message in blocked),
            ]
            self._queued.clear()
            # A message that a thread is working on still blocks the next messages of its instance.
            in_progress = (batch for batch, _ in self._list_in_progress())
            working = (batch[0] for batch in (*in_progress, *self._sent.values(), *self._answered))
            self._blocked = {message.instance_id: deque() for message in working if shares_instance(message)}
            self._blocked_count = 0
            self._forget([message.seq for message in dropped])
            return dropped

    def unpause(self) -> None:
        with self._lock:
            self._paused = False
            self._wake_claimers()

    def set_threads(self, count: int) -> None:
        """Change the number of dequeue threads. The caller starts those that are missing."""
        with self._lock:
            self._surplus += max(0, self._threads - count)
            self._surplus_spares += max(0, self._threads - count)
            self._threads = count
            self._has_messages.notify_all()
            self._all_busy.notify_all()

    def close(self) -> None:
        """Let the dequeue threads exit once the queue is empty, and the spare threads at once."""
        with self._lock:
            self._closed = True
            self._has_messages.notify_all()
            self._all_busy.notify_all()
            self._wake_claimers()

    def wait_until_finished(self, timeout: float) -> bool:
        """Wait until every message is finished. Return False after the timeout."""
        with self._lock:
            return self._all_finished.wait_for(lambda: not self._unfinished, timeout)

    @property
    def unfinished_count(self) -> int:
        """The number of messages that are in memory and not finished."""
        return len(self._unfinished)

    @property
    def unfinished_seqs(self) -> list[int]:
        """The sequence numbers of the messages that are in memory and not finished."""
        with self._lock:
            return list(self._unfinished)
