"""The work of a host instance for one service class: a poller, dequeue threads and a completer."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from postroom.application import Handler
from postroom.clock import Clock
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.dequeue_thread import DequeueThread
from postroom.hosts.dequeue.ordered_delivery import OrderedService, OrderedWorkBuffer
from postroom.hosts.dequeue.poller import GetThrottle, Poller
from postroom.hosts.dequeue.queue_claimer import QueueClaimer
from postroom.hosts.dequeue.service import BatchingService, Service, ThreadConnections
from postroom.hosts.dequeue.slow_services import SlowServiceWatcher
from postroom.messagebox.configuration.hosts import Dequeuing
from postroom.messagebox.connection import Connect
from postroom.messagebox.queues import ClaimedMessage, HostQueues

_log = logging.getLogger(__name__)


class Subservice:
    """One service class in a host instance. It starts paused, and works after ``unpause``.

    Messages that share an instance are handled one after the other.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        host_instance: int,
        dequeuing: Dequeuing,
        service: Service,
        memory_queue: int,
        get_throttle: GetThrottle,
        clock: Clock | None = None,
    ) -> None:
        batching = service if isinstance(service, BatchingService) else None
        service = OrderedService(service)
        self._service = service
        self._buffer = OrderedWorkBuffer(memory_queue)
        self.poller = Poller(
            dequeuing,
            self._buffer,
            lambda: QueueClaimer(
                connect=connect,
                queues=queues,
                host_instance=host_instance,
                service_class=dequeuing.service_class,
                service=service,
                buffer=self._buffer,
                clock=clock,
            ),
            get_throttle,
        )
        self._completer = Completer(
            connect=connect,
            queues=queues,
            buffer=self._buffer,
            on_scheduled=self.poller.wake_if_due_within,
            on_unblocked=self.poller.wake,
            clock=clock,
        )
        name = dequeuing.service_class.name.lower()

        def take_more(first: ClaimedMessage, limit: int) -> list[ClaimedMessage]:
            return self._buffer.take_more(first, limit, dequeuing.dequeue_threads)

        def new_thread(
            name: str, take: Callable[[], ClaimedMessage | None], batching: BatchingService | None = None
        ) -> DequeueThread:
            return DequeueThread(
                name,
                take=take,
                hand_over=self._buffer.hand_over,
                service=service,
                completer=self._completer,
                connections=ThreadConnections(connect, queues),
                batching=batching,
                take_more=take_more,
            )

        numbers = range(1, dequeuing.dequeue_threads + 1)
        self._threads = [new_thread(f"{name} {number}", self._buffer.take, batching) for number in numbers]
        spare_threads = [new_thread(f"spare {name} {number}", self._buffer.take_diverted) for number in numbers]
        self._watcher = SlowServiceWatcher(
            f"watch {name}", buffer=self._buffer, threads=self._threads, spare_threads=spare_threads
        )

    def start(self) -> None:
        self._completer.loop.start()
        for thread in self._threads:
            thread.start()
        self._watcher.loop.start()
        self.poller.start()

    def pause(self) -> None:
        """Start no message until ``unpause``. Messages in progress continue."""
        self._buffer.pause()

    def set_handlers(self, handlers: Mapping[bytes, Handler]) -> None:
        """Set the handler of each send port."""
        self._buffer.set_handlers(handlers)

    def unpause(self) -> None:
        self._buffer.unpause()
        self.wake()

    def wake(self) -> None:
        """Poll now: there may be messages."""
        self.poller.wake()

    @property
    def unfinished_seqs(self) -> list[int]:
        """The sequence numbers of the messages that are in progress, or whose outcome is not stored yet."""
        return self._buffer.unfinished_seqs

    @property
    def unfinished_count(self) -> int:
        """The number of messages in memory whose outcome is not stored yet."""
        return self._buffer.unfinished_count

    @property
    def claimed_count(self) -> int:
        """The number of messages that were claimed since the start."""
        return self._buffer.claimed_count

    @property
    def finished_count(self) -> int:
        """The number of messages that are not in memory any more."""
        return self._buffer.finished_count

    @property
    def counts(self) -> Counter[str]:
        """The number of messages by outcome since the start."""
        return self._completer.counts.copy()

    @property
    def handling_time(self) -> tuple[int, float]:
        """The number of messages that were handled since the start, and the sum of the seconds that each took."""
        threads = (*self._threads, *self._watcher.started_threads)
        return sum(thread.handled for thread in threads), sum(thread.handling_seconds for thread in threads)

    @property
    def waiting_seconds(self) -> float:
        """How long the messages that were handled had waited in the queue, in total."""
        return sum(thread.waiting_seconds for thread in (*self._threads, *self._watcher.started_threads))

    def stop(self, deadline: float) -> None:
        """Stop claiming, and wait until the messages in progress are finished, at most until the deadline."""
        self.poller.stop()
        self._buffer.pause()
        self._watcher.loop.stop()
        self._watcher.loop.join(max(1.0, deadline - time.monotonic()))
        self._buffer.close()
        threads = (*self._threads, *self._watcher.started_threads)
        ended = [thread.join(max(0.0, deadline - time.monotonic())) for thread in threads]
        finished = self._buffer.wait_until_finished(max(0.0, deadline - time.monotonic()))
        if not all(ended) or not finished:
            _log.warning("%d messages were still in progress when the host stopped", len(self.unfinished_seqs))
        self._completer.loop.stop()
        self._completer.loop.join(max(1.0, deadline - time.monotonic()))
        self._completer.close()
        self.poller.join(deadline)
        if all(ended):
            self._service.close()
