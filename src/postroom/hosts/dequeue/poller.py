"""The poller of a service class: decides when messages are claimed, and how many. Its claimers claim them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from postroom.clock import Clock
from postroom.hosts.dequeue.processing import MessageProcessor
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.configuration.hosts import Dequeuing, ServiceClass
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.coordination.notifications import AFTER_WAKE_UP
from postroom.messagebox.queues import ClaimedMessage, HostQueues, QueueTask
from postroom.processes.background_loop import BackgroundLoop
from postroom.throttling.states import Throttle, ThrottleState

_TIMEOUT = 1.0
#: No message is claimed in this state. The others delay claims.
_FULL = ThrottleState.IN_PROCESS
#: While claims skip slow services, the poller checks this often whether these services may be claimed again.
_WHILE_SKIPPING = 0.1
#: While delivery is throttled, the poller checks this often whether it may claim again.
WHILE_THROTTLED = 0.1
#: A claim that skips services reads their whole backlog. It uses at most one fifth of the time.
_REST_FACTOR = 4
#: After a full claim the next claims start behind its last message. After so many seconds they start at the beginning.
_FORGET_STARTS_SECONDS = 1.0

#: Returns how much the delivery is throttled, if it is.
GetThrottle = Callable[[], Throttle | None]


def is_held_back(throttle: Throttle | None, claimed_at: float) -> bool:
    """Return True if nothing may be claimed now, after the last claim at this time."""
    return throttle is not None and (throttle.state is _FULL or claimed_at + throttle.delay > time.monotonic())


class Poller:
    """Claims batches while there are messages, then waits for a wake-up or for the polling interval.

    A second claimer helps while there is a backlog and the threads are idle: one claimer waits for the disk while the
    other one claims.
    """

    def __init__(
        self,
        dequeuing: Dequeuing,
        buffer: WorkBuffer,
        new_claimer: Callable[[], QueueClaimer],
        get_throttle: GetThrottle,
    ) -> None:
        self._get_throttle = get_throttle
        self._claimed_at = 0.0
        self.interval = dequeuing.polling_interval
        self._buffer = buffer
        self._claimer, self._backlog_claimer = new_claimer(), new_claimer()
        self._woken_at = 0.0
        self._rest_until = 0.0
        self._has_backlog = False
        name = dequeuing.service_class
        self._polling = BackgroundLoop(f"poll {name}", self._poll)
        self._backlog_loop = BackgroundLoop(f"claim backlog {name}", self._claim_backlog)
        self._loops = (self._polling, self._backlog_loop)

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
        self._backlog_claimer.close()

    @property
    def stopping(self) -> bool:
        return self._polling.stopping

    def wake(self) -> None:
        """Poll now: there may be messages."""
        self._woken_at = time.monotonic()
        self._polling.wake()

    def wake_if_due_within(self, delay: timedelta) -> None:
        """Poll now if a message was scheduled that is due before the next regular poll."""
        if delay <= self.interval:
            self.wake()

    def _poll(self) -> float:
        rest = self._rest_until - time.monotonic()
        if rest > 0 and self._buffer.excluded_services:
            return min(rest, _WHILE_SKIPPING)
        throttle = self._get_throttle()
        if is_held_back(throttle, self._claimed_at):
            self._claimer.release_unconfirmed()
            return WHILE_THROTTLED
        capacity, generation = self._buffer.wait_for_capacity(_TIMEOUT)
        if not capacity or self.stopping:
            return 0.0
        is_skipping, started_at = bool(self._buffer.excluded_services), time.monotonic()
        limit = capacity if throttle is None else throttle.rows(capacity)
        claimed = self._claimer.claim(capacity, generation, limit=limit)
        now = self._claimed_at = time.monotonic()
        if claimed >= limit:
            self._has_backlog = True
            self._backlog_loop.wake()
        elif is_skipping:
            self._rest_until = now + _REST_FACTOR * (now - started_at)
            return _WHILE_SKIPPING
        elif claimed == 0:
            return AFTER_WAKE_UP if now - self._woken_at < AFTER_WAKE_UP else self.interval.total_seconds()
        return 0.0

    def _claim_backlog(self) -> float:
        if not self._has_backlog or self._get_throttle() is not None:
            # The first message of an ordered port may be in it, and block all others.
            self._backlog_claimer.release_unconfirmed()
            return _TIMEOUT
        capacity, generation = self._buffer.wait_for_capacity(_TIMEOUT, when_empty=True)
        if capacity and not self.stopping:
            self._has_backlog = self._backlog_claimer.claim(capacity, generation, limit=capacity) >= capacity
        return 0.0


class QueueClaimer:
    """Claims batches over one connection, one claim at a time.

    A claim whose answer was lost, or came too late, is released before the next claim, or by ``release_unconfirmed``
    if there may be none for a long time.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        host_instance: int,
        service_class: ServiceClass,
        service: MessageProcessor,
        buffer: WorkBuffer,
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._host_instance = host_instance
        self._service_class = service_class
        self._service = service
        self._buffer = buffer
        self._clock = clock
        self._unconfirmed_claim: uuid.UUID | None = None
        # By priority, the number after the last message of a full claim: the next claim starts there. Messages with
        # lower numbers may be released or become due, so these are forgotten now and then.
        self._starts: dict[int, int] = {}
        self._starts_until = 0.0

    def claim(self, capacity: int, generation: int, *, limit: int) -> int:
        """Claim up to ``limit`` messages. Return their number. The caller has reserved ``capacity``, which is not less,
        and which is released."""
        try:
            claimed = self._dequeue(limit)
            if self._buffer.put(claimed, generation):
                self._unconfirmed_claim = None
            return len(claimed)
        finally:
            self._buffer.release_capacity(capacity)

    def release_unconfirmed(self) -> None:
        """Release the messages of the last claim if no thread got them."""
        if self._unconfirmed_claim is not None:
            self._queues.release(self._connection.get(), self._unconfirmed_claim)
            self._unconfirmed_claim = None

    def close(self) -> None:
        self._connection.close()

    def _dequeue(self, limit: int) -> list[ClaimedMessage]:
        self.release_unconfirmed()
        connection = self._connection.get()
        self._unconfirmed_claim = uuid.uuid4()
        excluded = self._buffer.excluded_services
        claimed = self._queues.dequeue(
            connection,
            claim_id=self._unconfirmed_claim,
            host_instance=self._host_instance,
            service_class=self._service_class,
            limit=limit,
            excluded=excluded,
            ahead=self._buffer.ahead,
            starts=self._get_starts(),
            now=self._clock() if self._clock else None,
        )
        self._set_starts(claimed, limit, is_complete=not excluded)
        if claimed:
            self._service.prepare(connection, claimed)
        return claimed

    def _get_starts(self) -> Mapping[int, int] | None:
        if time.monotonic() >= self._starts_until:
            self._starts = {}
            self._starts_until = time.monotonic() + _FORGET_STARTS_SECONDS
        return self._starts or None

    def _set_starts(self, claimed: Sequence[ClaimedMessage], limit: int, *, is_complete: bool) -> None:
        unordered = [message for message in claimed if message.task != QueueTask.DELIVER_IN_ORDER]
        if not is_complete or len(unordered) < limit:
            self._starts = {}
            return
        for message in unordered:
            self._starts[message.priority] = message.seq + 1
