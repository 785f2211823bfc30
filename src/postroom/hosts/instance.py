"""A host instance: a process that registers with its host, serves its queues and runs the housekeeping jobs."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from postroom.adapters import build
from postroom.agent.resuming import ResumedInbound
from postroom.clock import Clock, system_clock
from postroom.hosts.configuration_watch import ConfigurationWatch
from postroom.hosts.delivery_throttle import DeliveryThrottle
from postroom.hosts.dequeue.service import BuildService, Service, ServiceContext
from postroom.hosts.http.locations import HttpLocations
from postroom.hosts.job_loop import JobLoop
from postroom.hosts.messaging.callers import Callers
from postroom.hosts.messaging.endpoint_manager import EndpointManager
from postroom.hosts.messaging.open_send_ports import BuildAdapter, OpenSendPorts
from postroom.hosts.messaging.requests import RequestReceiver
from postroom.hosts.messaging.responses import ResponseDelivery
from postroom.hosts.metrics import collect_host_metrics, collect_polled_metrics
from postroom.hosts.orchestrations.runner import OrchestrationRunner
from postroom.hosts.receiving.polled_locations import PolledLocations
from postroom.hosts.registration import LOCK_SOCKET, Registration
from postroom.hosts.session_watchdog import SessionWatchdog
from postroom.hosts.settings import HostSettings
from postroom.hosts.subservices import Subservices
from postroom.messagebox.configuration.endpoints import find_missing_secrets, read_receive_locations
from postroom.messagebox.configuration.hosts import (
    Host,
    ServiceClass,
    check_login_of_host,
    find_host,
    read_dequeuing,
)
from postroom.messagebox.connection import IDLE_TIMEOUTS, Connect, Connection, connect
from postroom.messagebox.coordination.notifications import OwnHost
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.storage.stored_responses import StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.messagebox.throttling.process_load import find_process_limits
from postroom.monitoring.instances import InstanceMetrics, count_instances
from postroom.monitoring.load import LoadMetrics
from postroom.monitoring.metrics import Metric
from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)


class HostInstance:
    """A host instance in this process.

        with HostInstance(url, "Orders", Path("orders-home")) as instance:
            ...

    ``as_role`` logs in as the host's own role if the server trusts that, otherwise with the login of the URL.
    ``services`` are the services of other service classes. The instance itself serves messaging.
    ``clock`` lets tests move the time. The default is the server's time.
    """

    def __init__(
        self,
        url: str,
        host_name: str,
        home: Path,
        *,
        as_role: bool = False,
        services: Mapping[ServiceClass, BuildService] | None = None,
        build_adapter: BuildAdapter = build,
        settings: HostSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._url = url
        self._host_name = host_name
        self._home = home
        self._as_role = as_role
        self._services = dict(services or {})
        self._build_adapter = build_adapter
        self._settings = settings or HostSettings()
        self._clock = clock
        self.on_stuck_thread: Callable[[], None] = lambda: None  #: Called if the process has to end because of it.
        self._subservices: Subservices | None = None
        self._configuration: ConfigurationWatch | None = None
        self._registration: Registration | None = None
        self._jobs: JobLoop | None = None
        self._watchdog: SessionWatchdog | None = None
        self._http: HttpLocations | None = None
        self._polled: PolledLocations | None = None
        self._orchestrations: OrchestrationRunner | None = None
        self._callers: Callers | None = None
        self._load: LoadMetrics | None = None
        self._instances: InstanceMetrics | None = None
        self._throttle: DeliveryThrottle | None = None

    def start(self) -> None:
        """Register and start to work. Raise NotFound, NotAllowed or Unavailable if that is not possible."""
        host, open_connection = self._log_in()
        queues = HostQueues(host.name)
        registration = Registration(
            connect=partial(open_connection, server_settings=IDLE_TIMEOUTS, socket_settings=LOCK_SOCKET),
            connect_other=open_connection,
            host=host,
            queues=queues,
            heartbeat=self._settings.heartbeat,
        )
        host_instance = registration.register()
        self._registration = registration
        registration.is_stopped = host.stopped
        own_host = OwnHost(name=host.name, wake=registration.wake)
        self._start_delivery(host, open_connection, queues, registration, own_host)
        if ServiceClass.ORCHESTRATIONS not in self._services and not host.isolated:
            self._start_orchestrations(open_connection, host, registration)
        registration.loop.start()
        if self._settings.runs_jobs:
            self._jobs = JobLoop(connect=open_connection, settings=self._settings.jobs)
            self._jobs.loop.start()
        self._watchdog = SessionWatchdog(open_connection)
        self._watchdog.loop.start()
        self._http = HttpLocations(
            connect=open_connection,
            host_id=host.host_id,
            home=self._home,
            receiver=RequestReceiver(host=host, host_instance=host_instance, callers=self.callers, own_host=own_host),
            answer_within=self._settings.answer_within.total_seconds(),
        )
        self._polled = PolledLocations(connect=open_connection, home=self._home, clock=self._clock or system_clock)
        self._configuration = ConfigurationWatch(open_connection, host_instance, self._apply_configuration)
        registration.on_configuration_change = self._configuration.loop.wake
        registration.on_declared_dead = self.callers.refuse_lost
        self._configuration.loop.start()
        self._instances = InstanceMetrics(open_connection, partial(count_instances, host=host.name))
        _log.info("host instance %d of %s has started", host_instance, host.name)

    def _log_in(self) -> tuple[Host, partial[Connection]]:
        """Return the host, and a function that opens connections with its login."""
        with connect(self._url, application_name="postroom host") as connection:
            host = find_host(connection, self._host_name)
        user = host.role_name if self._as_role else None
        open_connection = partial(connect, self._url, user=user, application_name=f"postroom host {host.name}")
        with open_connection() as connection:
            check_login_of_host(connection, host)
            for missing in find_missing_secrets(connection, host_id=host.host_id, in_spark=False):
                _log.warning("%s", missing)
        return host, open_connection

    def _start_delivery(
        self, host: Host, open_connection: Connect, queues: HostQueues, registration: Registration, own_host: OwnHost
    ) -> None:
        """Start to deliver messages to send ports and to callers that wait."""
        subscriptions = ServiceSubscriptions(host, ServiceClass.MESSAGING_IN_PROCESS)
        stored = StoredResponses(host.name)
        callers = self._callers = Callers(
            connect=open_connection,
            subscriptions=subscriptions,
            stored=stored,
            host_instance=registration.host_instance,
        )

        def build_messaging(context: ServiceContext) -> Service:
            return EndpointManager(
                host=host,
                ports=OpenSendPorts(home=self._home, build_adapter=self._build_adapter),
                queues=queues,
                resumed=ResumedInbound(host.name),
                responses=ResponseDelivery(callers=callers, queues=queues, stored=stored, subscriptions=subscriptions),
                own_host=own_host,
                clock=self._clock or system_clock,
            )

        throttle = self._throttle = DeliveryThrottle(
            host=host,
            host_instance=registration.host_instance,
            connect=open_connection,
            count_flow=lambda: subservices.count_flow(),
        )
        subservices = self._subservices = Subservices(
            connect=open_connection,
            host=host,
            queues=queues,
            registration=registration,
            services={ServiceClass.MESSAGING_IN_PROCESS: build_messaging, **self._services},
            settings=self._settings,
            get_throttle=throttle.current,
            clock=self._clock,
        )
        callers.loop.start()
        with open_connection() as connection:
            subservices.configure(connection)
        throttle.loop.start()
        self._load = LoadMetrics(
            host,
            open_connection,
            find_process_limits=find_process_limits,
            get_delivery=lambda: (throttle.current(), throttle.delivery),
        )

    def _start_orchestrations(self, open_connection: Connect, host: Host, registration: Registration) -> None:
        with open_connection() as connection:
            dequeuing = read_dequeuing(connection, ServiceClass.ORCHESTRATIONS)
        self._orchestrations = OrchestrationRunner(
            connect=open_connection,
            host=host,
            host_instance=registration.host_instance,
            dequeuing=dequeuing,
            turn_limit=self._settings.turn_limit,
            memory_queue=self._settings.memory_queue,
            on_stuck_thread=lambda: self.on_stuck_thread(),
            clock=self._clock,
        )
        self._orchestrations.start()
        registration.add(self._orchestrations)

    def _apply_configuration(self, connection: Connection) -> bool:
        """Apply what was deployed or changed. Return False if a location cannot be served yet."""
        assert self._registration is not None
        assert self._throttle is not None
        self.subservices.configure(connection)
        if self._orchestrations is not None:
            self._orchestrations.load_code(connection)
            self._orchestrations.set_dequeuing(read_dequeuing(connection, ServiceClass.ORCHESTRATIONS))
        host = self._throttle.host = find_host(connection, self._host_name)
        locations = [] if host.stopped else read_receive_locations(connection, host_id=host.host_id)
        is_listening = self.http.serve([one for one in locations if one.adapter_type.receives_on_spark])
        is_polling = self.polled_locations.serve([one for one in locations if not one.adapter_type.receives_on_spark])
        # Last: callers that wait get their responses before a stopped host claims no more messages.
        self._registration.set_stopped(connection, host.stopped)
        return is_polling and is_listening

    def stop(self) -> None:
        """Finish the messages in progress within ``stop_within``, release the others, and deregister."""
        if self._registration is None:
            return
        deadline = time.monotonic() + self._settings.stop_within.total_seconds()
        if self._jobs is not None:
            self._jobs.loop.stop()
        _stop_part(self._configuration, deadline)
        if self._http is not None:
            self._http.close(_get_rest(deadline))
            self._http = None
        if self._polled is not None:
            self._polled.close(_get_rest(deadline))
            self._polled = None
        if self._load is not None:
            self._load.close()
        _stop_part(self._throttle, deadline)
        _stop_part(self._callers, deadline)
        if self._orchestrations is not None:
            self._orchestrations.stop(deadline)
        if self._subservices is not None:
            self._subservices.stop(deadline)
        _stop_part(self._jobs, deadline)
        _stop_part(self._watchdog, deadline)
        self._registration.loop.stop()
        self._registration.loop.join(_get_rest(deadline))
        self._registration.deregister()
        self._registration = None
        _log.info("host instance of %s has stopped", self._host_name)

    @property
    def host_instance(self) -> int:
        """The number of the registered instance, or 0."""
        return self._registration.host_instance if self._registration else 0

    def collect_metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the instance, if it runs."""
        registration, http, load, polled = self._registration, self._http, self._load, self._polled
        instances, subservices = self._instances, self._subservices
        if registration and http and load and polled and instances and subservices:
            yield from collect_host_metrics(self._host_name, self.counts, subservices.running, http, registration)
            yield from collect_polled_metrics(self._host_name, polled.locations)
            yield from load.collect()
            yield from instances.collect()

    def find_problems(self) -> list[str]:
        """Return the reasons why the instance cannot do its work at the moment."""
        registration, http, polled = self._registration, self._http, self._polled
        if registration is None or http is None or polled is None:
            return ["The host instance is not running."]
        lost = [] if registration.has_lock else ["The host instance has lost its lock in the MessageBox."]
        orchestrations = [] if self._orchestrations is None else self._orchestrations.problems
        return lost + http.problems + polled.problems + orchestrations

    @property
    def http(self) -> HttpLocations:
        """The HTTP receive locations. Available while the instance runs."""
        assert self._http is not None
        return self._http

    @property
    def polled_locations(self) -> PolledLocations:
        """The receive locations that the host polls. Available while the instance runs."""
        assert self._polled is not None
        return self._polled

    @property
    def subservices(self) -> Subservices:
        """The subservices. Available while the instance runs."""
        assert self._subservices is not None
        return self._subservices

    @property
    def callers(self) -> Callers:
        """The callers that wait for responses. Available while the instance runs."""
        assert self._callers is not None
        return self._callers

    @property
    def is_stopped(self) -> bool:
        """True while an operator has stopped the host."""
        return self._registration is not None and self._registration.is_stopped

    @property
    def regained_locks(self) -> int:
        """The number of times that the instance lost its lock and acquired it again."""
        return self._registration.regained_locks if self._registration else 0

    @property
    def counts(self) -> Counter[str]:
        """The number of messages by outcome: completed, finished, released, retried, suspended, discarded."""
        return Counter() if self._subservices is None else self._subservices.counts

    @property
    def orchestration_counts(self) -> Counter[str]:
        """How often orchestration instances were worked on, by outcome: waiting, completed, suspended, discarded."""
        return Counter() if self._orchestrations is None else self._orchestrations.counts.copy()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class _Part(Protocol):
    """A part of a host instance with a background loop."""

    loop: BackgroundLoop

    def close(self) -> None: ...


def _stop_part(part: _Part | None, deadline: float) -> None:
    if part is not None:
        part.loop.stop()
        part.loop.join(_get_rest(deadline))
        part.close()


def _get_rest(deadline: float) -> float:
    """Return the seconds until the deadline, but at least one."""
    return max(1.0, deadline - time.monotonic())
