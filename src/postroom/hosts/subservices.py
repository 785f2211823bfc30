"""The subservice of messaging in a host instance, and its replacement when the settings of the class change."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

from postroom.clock import Clock
from postroom.hosts.delivery_throttle import Flow
from postroom.hosts.dequeue.poller import GetThrottle
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.subservice import Subservice
from postroom.hosts.registration import Registration
from postroom.hosts.settings import HostSettings
from postroom.messagebox.configuration.hosts import Dequeuing, Host, ServiceClass, read_dequeuing
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.queues import HostQueues
from postroom.ports.handlers import read_send_handlers

_log = logging.getLogger(__name__)


class Subservices:
    """Starts the subservice of messaging, and replaces it when its settings have changed."""

    def __init__(
        self,
        *,
        connect: Connect,
        host: Host,
        queues: HostQueues,
        registration: Registration,
        build_service: Callable[[], Service],
        settings: HostSettings,
        get_throttle: GetThrottle,
        clock: Clock | None,
    ) -> None:
        self._connect = connect
        self._host = host
        self._queues = queues
        self._registration = registration
        self._build_service = build_service
        self._settings = settings
        self._get_throttle = get_throttle
        self._clock = clock
        self._running: dict[Dequeuing, Subservice] = {}
        #: The counts of the subservices that were replaced.
        self._earlier_counts: Counter[str] = Counter()

    @property
    def running(self) -> list[Subservice]:
        """The subservice, and the one that it replaces until that has finished its messages."""
        return list(self._running.copy().values())

    def configure(self, connection: Connection) -> None:
        """Start the subservice, or apply the settings of its service class and the handlers of send ports. One thread
        at a time."""
        self._set_dequeuing(read_dequeuing(connection, ServiceClass.MESSAGING_IN_PROCESS))
        handlers = read_send_handlers(connection, self._host.host_id)
        for subservice in self.running:
            subservice.set_handlers(handlers)

    def stop(self, deadline: float) -> None:
        for subservice in self.running:
            subservice.stop(deadline)

    @property
    def counts(self) -> Counter[str]:
        """The number of messages by outcome."""
        return sum((subservice.counts for subservice in self.running), self._earlier_counts)

    def count_flow(self) -> Flow:
        subservices = self.running
        return Flow(
            claimed=sum(subservice.claimed_count for subservice in subservices),
            finished=sum(subservice.finished_count for subservice in subservices),
            in_process=sum(subservice.unfinished_count for subservice in subservices),
        )

    def _set_dequeuing(self, dequeuing: Dequeuing) -> None:
        """Start the subservice, or replace it. The old one finishes its messages."""
        before = next(iter(self._running), None)
        if before == dequeuing:
            return
        subservice = self._build(dequeuing)
        subservice.start()
        self._registration.add(subservice)
        self._running[dequeuing] = subservice
        if before is None:
            return
        old = self._running[before]
        old.stop(time.monotonic() + self._settings.stop_within.total_seconds())
        self._registration.remove(old)
        self._earlier_counts += self._running.pop(before).counts
        _log.info(
            "%s: polling every %g s with %d threads",
            dequeuing.service_class.name.lower(),
            dequeuing.polling_interval.total_seconds(),
            dequeuing.dequeue_threads,
        )

    def _build(self, dequeuing: Dequeuing) -> Subservice:
        return Subservice(
            connect=self._connect,
            queues=self._queues,
            host_instance=self._registration.host_instance,
            dequeuing=dequeuing,
            service=self._build_service(),
            memory_queue=self._settings.memory_queue,
            get_throttle=self._get_throttle,
            clock=self._clock,
        )
