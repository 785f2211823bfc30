"""The subservices of a host instance: one for each service class that it dequeues."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping

from postroom.clock import Clock
from postroom.hosts.delivery_throttle import Flow
from postroom.hosts.dequeue.poller import GetThrottle
from postroom.hosts.dequeue.service import BuildService, ServiceContext
from postroom.hosts.dequeue.subservice import Subservice
from postroom.hosts.registration import Registration
from postroom.hosts.settings import HostSettings
from postroom.messagebox.configuration.handlers import read_send_handlers
from postroom.messagebox.configuration.hosts import Dequeuing, Host, ServiceClass, read_dequeuing
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.subscriptions import ServiceSubscriptions

_log = logging.getLogger(__name__)


class Subservices:
    """Starts the subservices of ``services``, and replaces one whose settings have changed."""

    def __init__(
        self,
        *,
        connect: Connect,
        host: Host,
        queues: HostQueues,
        registration: Registration,
        services: Mapping[ServiceClass, BuildService],
        settings: HostSettings,
        get_throttle: GetThrottle,
        clock: Clock | None,
    ) -> None:
        self._connect = connect
        self._host = host
        self._queues = queues
        self._registration = registration
        self._services = services
        self._settings = settings
        self._get_throttle = get_throttle
        self._clock = clock
        self._running: dict[Dequeuing, Subservice] = {}
        #: The counts of subservices that were replaced.
        self._earlier_counts: Counter[str] = Counter()

    @property
    def running(self) -> list[Subservice]:
        """The subservices. One that is being replaced is among them until it has finished its messages."""
        return list(self._running.copy().values())

    def configure(self, connection: Connection) -> None:
        """Start the subservices, or apply the settings of their service classes and the handlers of send ports. One
        thread at a time."""
        for service_class in self._services:
            self._set_dequeuing(read_dequeuing(connection, service_class))
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
        """Start the subservice of a service class, or replace it. The old one finishes its messages."""
        before = next((known for known in self._running if known.service_class is dequeuing.service_class), None)
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
        service_class = dequeuing.service_class
        context = ServiceContext(
            host=self._host,
            queues=self._queues,
            subscriptions=ServiceSubscriptions(self._host, service_class),
            connect=self._connect,
        )
        return Subservice(
            connect=self._connect,
            queues=self._queues,
            host_instance=self._registration.host_instance,
            dequeuing=dequeuing,
            service=self._services[service_class](context),
            memory_queue=self._settings.memory_queue,
            get_throttle=self._get_throttle,
            in_order=service_class is not ServiceClass.MESSAGING_IN_PROCESS,
            clock=self._clock,
        )
