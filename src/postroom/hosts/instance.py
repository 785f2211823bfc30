"""A host instance: a process that registers with its host, serves its queues and runs the housekeeping jobs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from postroom.adapters import build
from postroom.clock import Clock
from postroom.hosts.instance_parts import HostSettings, InstanceParts
from postroom.hosts.messaging.open_send_ports import BuildAdapter
from postroom.messagebox.configuration.hosts import Host, check_login_of_host, find_host
from postroom.messagebox.connection import Connection, connect
from postroom.monitoring.metrics import Metric
from postroom.ports.missing_secrets import find_missing_secrets

_log = logging.getLogger(__name__)


class HostInstance:
    """A host instance in this process.

        with HostInstance(url, "Orders", Path("orders-home")) as instance:
            ...

    ``as_role`` logs in as the host's own role if the server trusts that, otherwise with the login of the URL.
    ``clock`` lets tests move the time. The default is the server's time.
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
    ) -> None:
        self._url = url
        self._host_name = host_name
        self._home = home
        self._as_role = as_role
        self._build_adapter = build_adapter
        self._settings = settings or HostSettings()
        self._clock = clock
        self.on_stuck_thread: Callable[[], None] = lambda: None  #: Called if the process has to end because of it.
        #: Kept after the end, for the counts.
        self._parts: InstanceParts | None = None
        self._is_running = False

    def start(self) -> None:
        """Register and start to work. Raise NotFound, NotAllowed or Unavailable if that is not possible."""
        host, open_connection = self._log_in()
        parts = InstanceParts(
            host,
            open_connection,
            self._home,
            build_adapter=self._build_adapter,
            settings=self._settings,
            clock=self._clock,
            on_stuck_thread=lambda: self.on_stuck_thread(),
        )
        try:
            parts.start()
        except BaseException:
            parts.stop()
            raise
        self._parts, self._is_running = parts, True
        _log.info("host instance %d of %s has started", self.host_instance, host.name)

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

    def stop(self) -> None:
        """Finish the messages in progress within ``stop_within``, release the others, and deregister."""
        if self._is_running:
            self._is_running = False
            self.parts.stop()
            _log.info("host instance of %s has stopped", self._host_name)

    @property
    def parts(self) -> InstanceParts:
        """What runs in the instance. Available after the start."""
        assert self._parts is not None, "the host instance was not started"
        return self._parts

    @property
    def host_instance(self) -> int:
        """The number of the registered instance, or 0."""
        return self.parts.registration.host_instance if self._is_running else 0

    def collect_metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the instance, if it runs."""
        if self._is_running:
            yield from self.parts.collect_metrics()

    def find_problems(self) -> list[str]:
        """Return the reasons why the instance cannot do its work at the moment."""
        return self.parts.find_problems() if self._is_running else ["The host instance is not running."]

    @property
    def counts(self) -> Counter[str]:
        """The number of messages by outcome: completed, finished, released, retried, suspended, discarded."""
        return Counter() if self._parts is None else self._parts.messaging.counts

    @property
    def orchestration_counts(self) -> Counter[str]:
        """How often orchestration instances were worked on, by outcome: waiting, completed, suspended, discarded."""
        runner = None if self._parts is None else self._parts.orchestrations
        return Counter() if runner is None else runner.counts.copy()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
