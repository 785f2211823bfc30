"""All that a host instance does for one service class: a poller, its threads, and a completer."""

from __future__ import annotations

import logging
import time
from collections import Counter

from postroom.clock import Clock
from postroom.hosts.dequeue.claimer import Claimer
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.dequeue_thread import DequeueThread
from postroom.hosts.dequeue.in_order import InOrder
from postroom.hosts.dequeue.instance_work import InstanceWork
from postroom.hosts.dequeue.poller import Poller
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.thread_connections import ThreadConnections
from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.configuration import Dequeuing
from postroom.messagebox.connection import Connect
from postroom.messagebox.queues import HostQueues

_log = logging.getLogger(__name__)


class Subservice:
    """Starts shut: ``reopen`` lets it work. ``in_order``: the messages of one instance one after the other."""

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
        service = InOrder(service) if in_order else service
        self._service = service
        self._work = InstanceWork(memory_queue) if in_order else WorkInHand(memory_queue)
        self._poller = Poller(
            dequeuing,
            self._work,
            lambda: Claimer(
                connect=connect,
                queues=queues,
                host_instance=host_instance,
                service_class=dequeuing.service_class,
                service=service,
                work=self._work,
                in_order=in_order,
                clock=clock,
            ),
        )
        self._completer = Completer(
            connect=connect,
            queues=queues,
            work=self._work,
            scheduled=self._poller.due_in,
            # Whatever is settled may have stood in the way of the next message of its instance.
            settled=self._poller.wake if in_order else None,
            clock=clock,
        )
        name = dequeuing.service_class.name.lower()
        self._threads = [
            DequeueThread(
                f"{name} {number}",
                work=self._work,
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

    def shut(self) -> None:
        """Hands out nothing until ``reopen``; what is under way goes on."""
        self._work.shut()

    def reopen(self) -> None:
        self._work.reopen()
        self._poller.wake()

    def wake(self) -> None:
        self._poller.wake()

    @property
    def held(self) -> list[int]:
        """The numbers of the rows that are under way, or whose outcome is not stored yet."""
        return self._work.held

    @property
    def counts(self) -> Counter[str]:
        """How many messages came to which end since the start."""
        return self._completer.counts.copy()

    def stop(self, deadline: float) -> None:
        """Claims nothing more, lets what is under way end and stores its outcomes; not longer than to the deadline."""
        self._poller.stop()
        self._work.shut()
        self._work.end()
        ended = [thread.join(max(0.0, deadline - time.monotonic())) for thread in self._threads]
        settled = self._work.wait_until_settled(max(0.0, deadline - time.monotonic()))
        if not all(ended) or not settled:
            _log.warning("%d messages were still under way when the host stopped", len(self.held))
        self._completer.loop.stop()
        self._completer.loop.join(max(1.0, deadline - time.monotonic()))
        self._completer.close()
        self._poller.join(deadline)
        if all(ended):
            self._service.close()
