"""The work of a host instance for one service class: a poller, dequeue threads and a completer."""

from __future__ import annotations

import logging
import time
from collections import Counter

from postroom.clock import Clock
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.dequeue_thread import DequeueThread
from postroom.hosts.dequeue.ordered_delivery import OrderedService, OrderedWorkBuffer
from postroom.hosts.dequeue.poller import Claimer, Poller
from postroom.hosts.dequeue.service import Service, ThreadConnections
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.configuration import Dequeuing
from postroom.messagebox.connection import Connect
from postroom.messagebox.queues import HostQueues

_log = logging.getLogger(__name__)


class Subservice:
    """One service class in a host instance. It starts paused, and works after ``unpause``.

    ``in_order`` handles the messages of one instance one after the other.
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
        in_order: bool = False,
        clock: Clock | None = None,
    ) -> None:
        service = OrderedService(service) if in_order else service
        self._service = service
        self._buffer = OrderedWorkBuffer(memory_queue) if in_order else WorkBuffer(memory_queue)
        self._poller = Poller(
            dequeuing,
            self._buffer,
            lambda: Claimer(
                connect=connect,
                queues=queues,
                host_instance=host_instance,
                service_class=dequeuing.service_class,
                service=service,
                buffer=self._buffer,
                in_order=in_order,
                clock=clock,
            ),
        )
        self._completer = Completer(
            connect=connect,
            queues=queues,
            buffer=self._buffer,
            on_scheduled=self._poller.wake_if_due_within,
            # A finished message may have blocked the next message of its instance.
            on_finished=self._poller.wake if in_order else None,
            clock=clock,
        )
        name = dequeuing.service_class.name.lower()
        self._threads = [
            DequeueThread(
                f"{name} {number}",
                buffer=self._buffer,
                service=service,
                completer=self._completer,
                connections=ThreadConnections(connect, queues),
            )
            for number in range(1, dequeuing.dequeue_threads + 1)
        ]

    def start(self) -> None:
        self._completer.loop.start()
        for thread in self._threads:
            thread.start()
        self._poller.start()

    def pause(self) -> None:
        """Start no message until ``unpause``. Messages in progress continue."""
        self._buffer.pause()

    def unpause(self) -> None:
        self._buffer.unpause()
        self._poller.wake()

    def wake(self) -> None:
        self._poller.wake()

    @property
    def unfinished(self) -> list[int]:
        """The sequence numbers of the messages that are in progress, or whose outcome is not stored yet."""
        return self._buffer.unfinished

    @property
    def counts(self) -> Counter[str]:
        """The number of messages by outcome since the start."""
        return self._completer.counts.copy()

    def stop(self, deadline: float) -> None:
        """Stop claiming, and wait until the messages in progress are finished, at most until the deadline."""
        self._poller.stop()
        self._buffer.pause()
        self._buffer.close()
        ended = [thread.join(max(0.0, deadline - time.monotonic())) for thread in self._threads]
        finished = self._buffer.wait_until_finished(max(0.0, deadline - time.monotonic()))
        if not all(ended) or not finished:
            _log.warning("%d messages were still in progress when the host stopped", len(self.unfinished))
        self._completer.loop.stop()
        self._completer.loop.join(max(1.0, deadline - time.monotonic()))
        self._completer.close()
        self._poller.join(deadline)
        if all(ended):
            self._service.close()
