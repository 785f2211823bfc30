"""The work of a host instance for one service class: a poller, dequeue threads and a completer."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping

from postroom.application import Handler
from postroom.clock import Clock
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.dequeue_thread import DequeueThread
from postroom.hosts.dequeue.poller import GetThrottle, Poller
from postroom.hosts.dequeue.queue_claimer import QueueClaimer
from postroom.hosts.dequeue.service import Service, ThreadConnections
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.configuration.hosts import Dequeuing
from postroom.messagebox.connection import Connect
from postroom.messagebox.queues import HostQueues

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
        self._service = service
        self._buffer = WorkBuffer(memory_queue, dequeuing.dequeue_threads, service.get_batch_limit)
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

        self._threads = [
            DequeueThread(
                f"{kind}{name} {number}",
                take=take,
                buffer=self._buffer,
                service=service,
                completer=self._completer,
                connections=ThreadConnections(connect, queues),
            )
            for kind, take in (("", self._buffer.take), ("spare ", self._buffer.take_spare))
            for number in range(1, dequeuing.dequeue_threads + 1)
        ]

    def start(self) -> None:
        self._completer.loop.start()
        for thread in self._threads:
            thread.start()
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
        threads = self._threads
        return sum(thread.handled for thread in threads), sum(thread.handling_seconds for thread in threads)

    @property
    def waiting_seconds(self) -> float:
        """How long the messages that were handled had waited in the queue, in total."""
        return sum(thread.waiting_seconds for thread in self._threads)

    def stop(self, deadline: float) -> None:
        """Stop claiming, and wait until the messages in progress are finished, at most until the deadline."""
        self.poller.stop()
        self._buffer.pause()
        self._buffer.close()
        ended = [thread.join(max(0.0, deadline - time.monotonic())) for thread in self._threads]
        finished = self._buffer.wait_until_finished(max(0.0, deadline - time.monotonic()))
        if not all(ended) or not finished:
            _log.warning("%d messages were still in progress when the host stopped", len(self.unfinished_seqs))
        self._completer.loop.stop()
        self._completer.loop.join(max(1.0, deadline - time.monotonic()))
        self._completer.close()
        self.poller.join(deadline)
        if all(ended):
            self._service.close()
