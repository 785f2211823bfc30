"""A host instance: a process that registers with its host, serves its queues and runs the housekeeping jobs."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from postroom.adapters import build
from postroom.adapters.contract import ReceivedBy
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock, system_clock
from postroom.hosts.caching import CachingService
from postroom.hosts.configuration_watch import ConfigurationWatch
from postroom.hosts.delivery_throttle import DeliveryThrottle, Flow
from postroom.hosts.dequeue.subservice import Subservice
from postroom.hosts.messaging.endpoint_manager import EndpointManager
from postroom.hosts.messaging.open_send_ports import BuildAdapter, OpenSendPorts
from postroom.hosts.messaging.two_way import ResponseDelivery
from postroom.hosts.metrics import collect_host_metrics
from postroom.hosts.orchestrations.runner import OrchestrationRunner
from postroom.hosts.registration import LOCK_SOCKET, Registration
from postroom.lookups.cache import LookupCache
from postroom.lookups.source import add_source, remove_source
from postroom.messagebox.configuration.hosts import (
    Host,
    ServiceClass,
    check_login_of_host,
    find_host,
    read_dequeuing,
    read_dequeuing_of_host,
)
from postroom.messagebox.connection import IDLE_TIMEOUTS, Connection, connect
from postroom.messagebox.coordination.heartbeat import HEARTBEAT_SECONDS
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.coordination.running_processes import report_problems
from postroom.messagebox.coordination.session_watchdog import SessionWatchdog
from postroom.messagebox.instances import count_instances_of_host
from postroom.messagebox.lookups import has_lookups
from postroom.messagebox.maintenance.jobs import JobLoop, JobSettings
from postroom.messagebox.monitored_services import (
    LOCATION,
    RECEIVING,
    SINK,
    MonitoredService,
    read_monitored_services,
)
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.storage.stored_responses import StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.monitoring.messagebox_metrics import InstanceMetrics, LoadMetrics
from postroom.monitoring.metrics import Metric
from postroom.monitoring.services import ServiceWatch
from postroom.ports.handlers import read_send_handlers
from postroom.ports.missing_secrets import find_missing_secrets
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.processes.background_loop import BackgroundLoop
from postroom.receiving.http.locations import HttpLocations
from postroom.receiving.location_meter import collect_location_metrics
from postroom.receiving.location_runner import LocationRunner
from postroom.receiving.polled_location import PolledLocation
from postroom.throttling.process_load import find_process_limits
from postroom.two_way.callers import Callers, RequestPublisher

_log = logging.getLogger(__name__)

#: How long the batch of a polled location that has changed may take before other locations are served.
_BATCH_SECONDS = 5.0


def _get_default_memory_queue() -> int:
    return 100 * (os.cpu_count() or 1)


@dataclass(frozen=True, kw_only=True)
class HostSettings:
    """The settings of a host instance. The defaults are for production, and tests shorten the times."""

    #: Maximum number of claimed messages in memory. The host dequeues no more messages above it.
    memory_queue: int = field(default_factory=_get_default_memory_queue)
    #: How long messages in progress may take to finish after the host was stopped.
    stop_within: timedelta = timedelta(seconds=30)
    #: How long callers may wait for their responses after the host was stopped. Then they get a 503.
    answer_within: timedelta = timedelta(seconds=6)
    #: How often a statement is sent on the connection that holds the lock. PostgreSQL ends the session after 8 s
    #: without one.
    heartbeat: timedelta = timedelta(seconds=HEARTBEAT_SECONDS)
    #: How long an orchestration may run without waiting. It is suspended then.
    turn_limit: timedelta = timedelta(seconds=30)
    #: How long a call may keep the interpreter lock, so that no thread runs. The process ends then.
    blocked_limit: timedelta = timedelta(seconds=60)
    #: True if this instance runs housekeeping jobs.
    runs_jobs: bool = True
    jobs: JobSettings = field(default_factory=JobSettings)


class HostInstance:
    """A host instance in this process. Its parts are started and stopped in order.

        with HostInstance(url, "Orders", Path("orders-home")) as instance:
            ...

    ``as_role`` logs in as the host's own role if the server trusts that, otherwise with the login of the URL.
    ``on_stuck_thread`` is called if the process has to end, because an orchestration blocks a thread. ``clock`` lets
    tests move the time. The default is the server's time.
    """

    def __init__(
        self,
        url: str,
        host_name: str,
        home: Path,
        *,
        as_role: bool = False,
        build_adapter: BuildAdapter = build,
        settings: HostSettings | None = None,
        clock: Clock | None = None,
        on_stuck_thread: Callable[[], None] = lambda: None,
    ) -> None:
        self._url = url
        self._host_name = host_name
        self._home = home
        self._as_role = as_role
        self._build_adapter = build_adapter
        self._settings = settings or HostSettings()
        self._clock = clock
        self._on_stuck_thread = on_stuck_thread
        self._is_running = False

    def start(self) -> None:
        """Register and start to work. Raise NotFound, NotAllowed or Unavailable if that is not possible."""
        self._log_in()
        self._register()
        self._is_running = True
        try:
            self._start_parts()
        except BaseException:
            self.stop()
            raise
        _log.info("host instance %d of %s has started", self.host_instance, self._host.name)

    def _log_in(self) -> None:
        """Find the host, and check the login that its connections are opened with."""
        with connect(self._url, application_name="postroom host") as connection:
            host = self._host = find_host(connection, self._host_name)
        user = host.role_name if self._as_role else None
        self._open_connection = partial(connect, self._url, user=user, application_name=f"postroom host {host.name}")
        with self._open_connection() as connection:
            check_login_of_host(connection, host)
            for missing in find_missing_secrets(connection, host_id=host.host_id, in_spark=False):
                _log.warning("%s", missing)

    def _register(self) -> None:
        """Register the instance, and make its parts."""
        host, open_connection = self._host, self._open_connection
        home, settings, clock = self._home, self._settings, self._clock
        queues = HostQueues(host.name)
        with open_connection() as connection:
            messaging = read_dequeuing_of_host(connection, host, host.messaging_class)
            orchestrations = read_dequeuing_of_host(connection, host, ServiceClass.ORCHESTRATIONS)
        self.registration = Registration(
            connect=partial(open_connection, server_settings=IDLE_TIMEOUTS, socket_settings=LOCK_SOCKET),
            connect_other=open_connection,
            host=host,
            queues=queues,
            heartbeat=settings.heartbeat,
        )
        # Nothing after this may fail: the registration would stay.
        host_instance = self.registration.register()
        self.registration.is_stopped = host.stopped
        routing = RoutingTable()
        own_host = OwnHost(name=host.name, wake=self.registration.wake)
        stored = StoredResponses(host.name)
        subscriptions = ServiceSubscriptions(host, host.messaging_class)
        self.callers = Callers(
            connect=open_connection, subscriptions=subscriptions, stored=stored, host_instance=host_instance
        )

        self.throttle = DeliveryThrottle(
            host=host,
            host_instance=host_instance,
            connect=open_connection,
            count_flow=self._count_flow,
        )
        self.messaging = Subservice(
            connect=open_connection,
            queues=queues,
            host_instance=host_instance,
            dequeuing=messaging,
            service=EndpointManager(
                host=host,
                ports=OpenSendPorts(home=home, build_adapter=self._build_adapter),
                queues=queues,
                routing=routing,
                responses=ResponseDelivery(
                    callers=self.callers, queues=queues, stored=stored, subscriptions=subscriptions
                ),
                own_host=own_host,
                clock=clock or system_clock,
            ),
            memory_queue=settings.memory_queue,
            get_throttle=self.throttle.current,
            clock=clock,
        )
        #: Started when the host has its first lookup.
        self.caching: Subservice | None = None
        self._create_caching = partial(
            Subservice,
            connect=open_connection,
            queues=queues,
            host_instance=host_instance,
            service=CachingService(host),
            memory_queue=settings.memory_queue,
            get_throttle=self.throttle.current,
            clock=clock,
        )
        self._lookups = LookupCache(open_connection)
        self.orchestrations: OrchestrationRunner | None = None
        if not host.isolated:
            self.orchestrations = OrchestrationRunner(
                connect=open_connection,
                host=host,
                host_instance=host_instance,
                routing=routing,
                dequeuing=orchestrations,
                turn_limit=settings.turn_limit,
                memory_queue=settings.memory_queue,
                get_throttle=self.throttle.current,
                on_stuck_thread=self._on_stuck_thread,
                clock=clock,
            )
        self._jobs = JobLoop(connect=open_connection, settings=settings.jobs) if settings.runs_jobs else None
        self._watchdog = SessionWatchdog(open_connection)
        self.http = HttpLocations(
            connect=open_connection,
            host_id=host.host_id,
            home=home,
            requests=RequestPublisher(
                host=host, host_instance=host_instance, callers=self.callers, routing=routing, own_host=own_host
            ),
            answer_within=settings.answer_within.total_seconds(),
        )
        self._poll_location = partial(
            PolledLocation, connect=open_connection, home=home, routing=routing, clock=clock or system_clock
        )
        self.polled = LocationRunner(self._start_polling, stop_seconds=_BATCH_SECONDS)
        self._configuration = ConfigurationWatch(open_connection, host_instance, self._apply_configuration)
        self._load = LoadMetrics(
            host,
            open_connection,
            find_process_limits=find_process_limits,
            get_delivery=lambda: (self.throttle.current(), self.throttle.delivery),
        )
        self._instances = InstanceMetrics(open_connection, partial(count_instances_of_host, host=host.name))
        self._services = ServiceWatch(host.name, open_connection, self._read_services)

    def _start_parts(self) -> None:
        """Start to deliver, to apply messages to lookups, to run orchestrations and to receive."""
        add_source(self._lookups)
        self.callers.loop.start()
        with self._open_connection() as connection:
            self._configure_messaging(connection, self._host)
            self._configure_caching(connection)
        self.messaging.start()
        self.registration.add(self.messaging)
        self.throttle.loop.start()
        if self.orchestrations is not None:
            self.orchestrations.start()
            self.registration.add(self.orchestrations)
        self.registration.on_configuration_change = self._configuration.loop.wake
        self.registration.on_declared_dead = self.callers.refuse_lost
        self.registration.loop.start()
        if self._jobs is not None:
            self._jobs.loop.start()
        self._watchdog.loop.start()
        self._configuration.loop.start()
        self._services.loop.start()

    def stop(self) -> None:
        """Finish the messages in progress within ``stop_within``, release the others, and deregister."""
        if not self._is_running:
            return
        self._is_running = False
        deadline = time.monotonic() + self._settings.stop_within.total_seconds()
        if self._jobs is not None:
            self._jobs.loop.stop()
        _stop_part(self._services, deadline)
        _stop_part(self._configuration, deadline)
        self.http.close(_get_rest(deadline))
        self.polled.stop(_get_rest(deadline))
        self.polled.join(_get_rest(deadline))
        self._load.close()
        _stop_part(self.throttle, deadline)
        _stop_part(self.callers, deadline)
        if self.orchestrations is not None:
            self.orchestrations.stop(deadline)
        self.messaging.stop(deadline)
        if self.caching is not None:
            self.caching.stop(deadline)
        remove_source(self._lookups)
        self._lookups.close()
        if self._jobs is not None:
            _stop_part(self._jobs, deadline)
        _stop_part(self._watchdog, deadline)
        self.registration.loop.stop()
        self.registration.loop.join(_get_rest(deadline))
        self.registration.deregister()
        _log.info("host instance of %s has stopped", self._host.name)

    @property
    def host_instance(self) -> int:
        """The number of the registered instance, or 0."""
        return self.registration.host_instance if self._is_running else 0

    @property
    def counts(self) -> Counter[str]:
        """The number of messages by outcome: completed, finished, released, retried, suspended, discarded."""
        return self.messaging.counts

    @property
    def caching_counts(self) -> Counter[str]:
        """The number of messages for lookups by outcome: finished, released, suspended, discarded."""
        return Counter() if self.caching is None else self.caching.counts

    @property
    def orchestration_counts(self) -> Counter[str]:
        """How often orchestration instances were worked on, by outcome: waiting, completed, suspended, discarded."""
        return Counter() if self.orchestrations is None else self.orchestrations.counts.copy()

    def _apply_configuration(self, connection: Connection) -> bool:
        """Apply what was deployed or changed. Return False if a location cannot be served yet."""
        host = self.throttle.host = find_host(connection, self._host.name)
        self._configure_messaging(connection, host)
        self._configure_caching(connection)
        if self.orchestrations is not None:
            self.orchestrations.load_code(connection)
            self.orchestrations.set_dequeuing(read_dequeuing_of_host(connection, host, ServiceClass.ORCHESTRATIONS))
        locations = [] if host.stopped else read_receive_locations(connection, host_id=host.host_id)
        is_listening = self.http.serve(_select(locations, ReceivedBy.LISTENER))
        is_polling = self.polled.apply(
            {location.location_id: location for location in _select(locations, ReceivedBy.POLLER) if location.enabled}
        )
        waiting = {} if self.orchestrations is None else self.orchestrations.waiting
        polled = {key: problem for key, problem in self.polled.problems.items() if isinstance(key, uuid.UUID)}
        report_problems(connection, self.registration.host_instance, {**self.http.problems, **polled, **waiting})
        # Last: callers that wait get their responses before a stopped host claims no more messages.
        self.registration.set_stopped(connection, host.stopped)
        return is_polling and is_listening

    def _start_polling(self, location: ReceiveLocation) -> PolledLocation:
        polled = self._poll_location(location)
        polled.loop.start()
        return polled

    def _configure_messaging(self, connection: Connection, host: Host) -> None:
        """Apply the settings of the service class and the host, and the handlers of send ports."""
        self.messaging.set_dequeuing(read_dequeuing_of_host(connection, host, host.messaging_class))
        self.messaging.set_handlers(read_send_handlers(connection, host.host_id))

    def _configure_caching(self, connection: Connection) -> None:
        """Apply the settings of the service class, and start it when there are lookups."""
        dequeuing = read_dequeuing(connection, ServiceClass.CACHING)
        if self.caching is not None:
            self.caching.set_dequeuing(dequeuing)
        elif not self._host.isolated and has_lookups(connection):
            self.caching = self._create_caching(dequeuing=dequeuing)
            self.caching.start()
            self.registration.add(self.caching)

    def _count_flow(self) -> Flow:
        messaging, orchestrations = self.messaging, self.orchestrations
        claimed, in_process = (
            (0, 0) if orchestrations is None else (orchestrations.claimed_count, orchestrations.unfinished_count)
        )
        return Flow(
            claimed=messaging.claimed_count + claimed,
            finished=messaging.finished_count + max(0, claimed - in_process),
            in_process=messaging.unfinished_count + in_process,
        )

    def collect_metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the instance, if it runs."""
        if not self._is_running:
            return
        yield from collect_host_metrics(self._host.name, self.messaging, self.http, self.registration)
        polled = {one.location.name: one.meter for one in self.polled.running.copy().values() if one.state}
        yield from collect_location_metrics(self._host.name, polled)
        yield from self._load.collect()
        yield from self._instances.collect()
        yield from self._services.collect()

    def find_problems(self) -> list[str]:
        """Return the reasons why the instance cannot do its work at the moment."""
        if not self._is_running:
            return ["The host instance is not running."]
        lost = [] if self.registration.has_lock else ["The host instance has lost its lock in the MessageBox."]
        orchestrations = [] if self.orchestrations is None else self.orchestrations.problems
        return [*lost, *orchestrations, *self._services.find_problems()]

    def _read_services(self, connection: Connection) -> list[MonitoredService]:
        """Return the services that this process serves, and no pipeline. Nobody reports the state of a location for
        HTTP: it receives, if no process has a problem with it."""
        polled = {key for key, one in self.polled.running.copy().items() if one.state is not None}
        locations = polled | self.polled.problems.copy().keys() | self.http.problems.keys() | self.http.enabled_ids
        return [
            replace(service, state=service.state or RECEIVING)
            for service in read_monitored_services(connection, self._host.name)
            if (service.service_id in locations if service.kind == LOCATION else service.kind != SINK)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def _select(locations: Iterable[ReceiveLocation], received_by: ReceivedBy) -> list[ReceiveLocation]:
    return [location for location in locations if location.adapter_type.received_by is received_by]


class _Part(Protocol):
    """A part of a host instance with a background loop."""

    loop: BackgroundLoop

    def close(self) -> None: ...


def _stop_part(part: _Part, deadline: float) -> None:
    part.loop.stop()
    # Otherwise the thread still uses its connection. The end of the process closes it.
    if part.loop.join(_get_rest(deadline)):
        part.close()


def _get_rest(deadline: float) -> float:
    """Return the seconds until the deadline, but at least one."""
    return max(1.0, deadline - time.monotonic())
