"""One process of a host: registered, polling, handing over, completing, keeping house."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from postroom.adapters import build
from postroom.agent.resuming import ResumedInbound
from postroom.clock import Clock, system_clock
from postroom.hosts.dequeue.service import BuildService, ServiceContext
from postroom.hosts.dequeue.subservice import Subservice
from postroom.hosts.http.locations import HttpLocations
from postroom.hosts.jobs import JobLoop
from postroom.hosts.messaging.endpoint_manager import EndpointManager
from postroom.hosts.messaging.send_ports import BuildAdapter, OpenSendPorts
from postroom.hosts.registration import LOCK_SERVER, LOCK_SOCKET, Registration
from postroom.hosts.settings import HostSettings
from postroom.messagebox.configuration import ServiceClass, dequeuing, host_named
from postroom.messagebox.connection import connect
from postroom.messagebox.permission import require_host
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.service_subscriptions import ServiceSubscriptions

_log = logging.getLogger(__name__)


class HostInstance:
    """A host instance in this process.

        with HostInstance(url, "Orders", Path("orders-home")) as instance:
            ...

    ``as_role`` logs in as the host's own role, where the server trusts that; otherwise the URL says who logs in.
    ``services`` are those of other service classes than messaging, which the instance serves itself.
    ``clock`` is for tests that move the time; without it the server's time counts.
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
        self._subservices: list[Subservice] = []
        self._registration: Registration | None = None
        self._jobs: JobLoop | None = None
        self._http: HttpLocations | None = None

    def start(self) -> None:
        """Registers and begins to work. Raises NotFound, NotAllowed or Unavailable if it cannot."""
        with connect(self._url, application_name="postroom host") as connection:
            host = host_named(connection, self._host_name)
            messaging = dequeuing(connection, ServiceClass.MESSAGING_IN_PROCESS)
            others = {one: dequeuing(connection, one) for one in self._services}
        user = host.role_name if self._as_role else None
        open_connection = partial(connect, self._url, user=user, application_name=f"postroom host {host.name}")
        with open_connection() as connection:
            require_host(connection, host)
        queues = HostQueues(host.name)
        registration = Registration(
            connect=partial(open_connection, server_settings=LOCK_SERVER, socket_settings=LOCK_SOCKET),
            connect_other=open_connection,
            host=host,
            queues=queues,
            heartbeat=self._settings.heartbeat,
            on_wake=self._wake,
            on_lost=self._shut,
            on_back=self._reopen,
            held=self._held,
        )
        host_instance = registration.register()
        self._registration = registration
        ports = OpenSendPorts(
            home=self._home, max_age=self._settings.configuration_age, build_adapter=self._build_adapter
        )
        self._subservices = [
            Subservice(
                connect=open_connection,
                queues=queues,
                host_instance=host_instance,
                dequeuing=messaging,
                service=EndpointManager(
                    ports=ports,
                    queues=queues,
                    resumed=ResumedInbound(host.name),
                    clock=self._clock or system_clock,
                ),
                memory_queue=self._settings.memory_queue,
                clock=self._clock,
            ),
            *(
                Subservice(
                    connect=open_connection,
                    queues=queues,
                    host_instance=host_instance,
                    dequeuing=others[service_class],
                    service=build(
                        ServiceContext(
                            host=host,
                            queues=queues,
                            subscriptions=ServiceSubscriptions(host, service_class),
                            connect=open_connection,
                        )
                    ),
                    memory_queue=self._settings.memory_queue,
                    in_order=True,
                    clock=self._clock,
                )
                for service_class, build in self._services.items()
            ),
        ]
        for subservice in self._subservices:
            subservice.start()
        self._registration.loop.start()
        self._reopen()
        if self._settings.runs_jobs:
            self._jobs = JobLoop(connect=open_connection, settings=self._settings.jobs)
            self._jobs.loop.start()
        self._http = HttpLocations(connect=open_connection, host_id=host.host_id, home=self._home)
        self._http.loop.start()
        _log.info("host instance %d of %s is working", host_instance, host.name)

    def stop(self) -> None:
        """Finishes what is under way (bounded by the settings), gives back the rest, and deregisters."""
        if self._registration is None:
            return
        deadline = time.monotonic() + self._settings.stop_within.total_seconds()
        if self._jobs is not None:
            self._jobs.loop.stop()
        if self._http is not None:
            self._http.loop.stop()
            self._http.loop.join(max(1.0, deadline - time.monotonic()))
            self._http.close(max(1.0, deadline - time.monotonic()))
            self._http = None
        for subservice in self._subservices:
            subservice.stop(deadline)
        if self._jobs is not None:
            self._jobs.loop.join(max(1.0, deadline - time.monotonic()))
            self._jobs.close()
        self._registration.loop.stop()
        self._registration.loop.join(max(1.0, deadline - time.monotonic()))
        self._registration.deregister()
        self._registration = None
        _log.info("host instance of %s has stopped", self._host_name)

    @property
    def host_instance(self) -> int:
        """The number under which it is registered."""
        return self._registration.host_instance if self._registration else 0

    @property
    def http(self) -> HttpLocations:
        """Its HTTP receive locations, while it works."""
        assert self._http is not None
        return self._http

    @property
    def returns(self) -> int:
        """How often it lost its lock and took it again."""
        return self._registration.returns if self._registration else 0

    @property
    def counts(self) -> Counter[str]:
        """How many messages came to which end: completed, settled, released, retried, suspended, discarded."""
        return sum((subservice.counts for subservice in self._subservices), Counter())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _wake(self) -> None:
        for subservice in self._subservices:
            subservice.wake()

    def _shut(self) -> None:
        for subservice in self._subservices:
            subservice.shut()

    def _reopen(self) -> None:
        for subservice in self._subservices:
            subservice.reopen()

    def _held(self) -> list[int]:
        return [seq for subservice in self._subservices for seq in subservice.held]
