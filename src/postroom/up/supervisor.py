"""Supervise the embedded PostgreSQL server, the pipelines and the hosts for `postroom up`.

Each is a process of its own. A process that is frozen is killed. A process that ends is restarted: the first time at
once, then with a backoff. The database is restarted before the processes that need it. All of them end with the
supervisor, even if it is killed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from postroom.errors import Unavailable
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.notifications import CONFIGURATION_CHANNEL, Listener
from postroom.messagebox.embedded import EmbeddedServer
from postroom.monitoring.logs import LogFormat
from postroom.monitoring.server import LOOPBACK
from postroom.monitoring.services import Report
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from postroom.processes.frozen_processes import FrozenProcesses
from postroom.spark.settings import add_bulk_settings
from postroom.up.change_report import ChangeReport
from postroom.up.child_process import ChildProcess

_POLL_SECONDS = 0.2
#: New hosts are noticed by a notification. This is for one that was lost, and for a MessageBox that does not answer.
_POLL_HOSTS_SECONDS, _RETRY_SECONDS = 60.0, 5.0
_STOP_SECONDS = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """The options of Spark that are passed on to the pipelines."""

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def as_arguments(self) -> list[str]:
        """Return the options of `postroom pipeline run`."""
        master = [] if self.master is None else ["--master", self.master]
        return master + [word for key, value in self.settings.items() for word in ("--conf", f"{key}={value}")]


@dataclass(frozen=True, kw_only=True)
class MonitoringSettings:
    """How the processes are monitored. They use the ports after ``metrics_port``, which is the supervisor's own."""

    metrics_port: int | None = None
    metrics_listen: str = LOOPBACK
    log_format: LogFormat = LogFormat.TEXT

    def as_arguments(self, port: int | None) -> list[str]:
        """Return the options of `postroom host run` and `postroom pipeline run`."""
        log_format = [] if self.log_format is LogFormat.TEXT else ["--log-format", self.log_format.value]
        if port is None:
            return log_format
        return [*log_format, "--metrics-port", str(port), "--metrics-listen", self.metrics_listen]


@dataclass(frozen=True, kw_only=True)
class ProcessState:
    """A supervised process. ``starts`` is the number of its starts."""

    name: str
    is_running: bool
    starts: int
    metrics_port: int | None


class Supervisor:
    """Runs all processes that a deployed MessageBox needs.

    If ``server`` is given instead of ``url``, it is the embedded server under ``home`` and is supervised, too."""

    def __init__(
        self,
        url: str | None,
        home: Path,
        *,
        server: EmbeddedServer | None = None,
        spark: SparkOptions | None = None,
        monitoring: MonitoringSettings | None = None,
        report: Report = _log.info,
        report_problem: Report | None = None,
    ) -> None:
        self._url = url
        self._home = home
        self._server = server
        self._spark = spark or SparkOptions()
        self._monitoring = monitoring or MonitoringSettings()
        self._report = report
        self._report_problem = report_problem or report
        self._children: list[ChildProcess] = []
        self._frozen = FrozenProcesses()
        self._next_host_poll = 0.0
        self._listener = Listener(self._connect, {CONFIGURATION_CHANNEL: self._poll_hosts_now})
        self._changes = ChangeReport(report, self._report_problem)

    @property
    def url(self) -> str:
        if self._url is not None:
            return self._url
        assert self._server is not None
        return self._server.url()

    def start_pipelines(self, hosts: Mapping[str, bool]) -> None:
        """Start Spark for hosts that are not deployed yet, with the settings for bulk files if the value is True. The
        processes continue when the supervisor runs."""
        for host, reads_rows in hosts.items():
            self._add(child := self._build_child("pipeline", host, reads_rows=reads_rows))
            child.start(held=True)

    def run(self, stop: threading.Event) -> None:
        """Supervise until ``stop`` is set, then stop all processes in order."""
        try:
            for child in self._children:
                child.release()
                self._report_start(child)
            while not stop.is_set():
                self._supervise_server()
                self._add_children()
                for pid in self._frozen.kill(self.pids().values()):
                    self._report_problem(f"Process {pid} was frozen and has been killed")
                for child in self._children:
                    self._supervise(child)
                self._changes.report_if_due(self.url)
                stop.wait(_POLL_SECONDS)
        finally:
            self._report("Stopping: pipelines, then hosts" + (", then PostgreSQL" if self._server is not None else ""))
            self.stop()

    def pids(self) -> dict[str, int]:
        """Return the ids of the running processes by name."""
        return {child.name: child.process.pid for child in self._children if child.process is not None}

    @property
    def has_database(self) -> bool:
        """True if the embedded server runs, or if the database is not supervised."""
        return self._server is None or self._server.pid is not None

    @property
    def processes(self) -> list[ProcessState]:
        """The supervised processes."""
        return [
            ProcessState(
                name=child.name,
                is_running=child.process is not None,
                starts=child.starts,
                metrics_port=child.metrics_port,
            )
            for child in self._children.copy()
        ]

    def _add_children(self) -> None:
        """Add the processes of hosts, and of their first locations and sinks, that were applied in the meantime."""
        try:
            if self._listener.connection is None and time.monotonic() < self._next_host_poll:
                return
            connection = self._listener.get()
            if time.monotonic() < self._next_host_poll:
                return
            self._next_host_poll = time.monotonic() + _POLL_HOSTS_SECONDS
            known = {child.name.lower() for child in self._children}
            for child in self._read_children(connection):
                if child.name.lower() not in known:
                    self._add(child)
        except Unavailable as error:
            self._report_problem(f"The MessageBox does not answer: {str(error).splitlines()[0]}")
            # A lost connection is replaced at once, because a change may have been missed.
            was_connected = self._listener.connection is not None
            self._next_host_poll = 0.0 if was_connected else time.monotonic() + _RETRY_SECONDS
            self._listener.close()

    def _connect(self) -> Connection:
        return connect(self.url, application_name="postroom up")

    def _poll_hosts_now(self) -> None:
        self._next_host_poll = 0.0

    def _add(self, child: ChildProcess) -> None:
        if self._monitoring.metrics_port is not None:
            child.metrics_port = self._monitoring.metrics_port + len(self._children) + 1
        child.command = [*child.command, *self._monitoring.as_arguments(child.metrics_port)]
        self._children.append(child)

    def _read_children(self, connection: Connection) -> list[ChildProcess]:
        known = read_hosts(connection)
        on_spark = {
            location.host_id for location in read_receive_locations(connection) if location.is_published_on_spark
        }
        on_spark |= {port.host_id for port in read_send_ports(connection) if port.is_sink}
        children = [self._build_child("host", host.name) for host in known]
        return children + [self._build_child("pipeline", host.name) for host in known if host.host_id in on_spark]

    def _build_child(self, kind: str, host: str, *, reads_rows: bool = False) -> ChildProcess:
        command = [sys.executable, "-m", "postroom", kind, "run", host, "--home", str(self._home)]
        if kind == "pipeline":
            spark = self._spark
            command += (
                replace(spark, settings=add_bulk_settings(spark.settings)) if reads_rows else spark
            ).as_arguments()
        name = f"{kind} {host}"
        # The URL may contain a password. Every user of the machine can read arguments, but not the environment.
        environment = {**os.environ, **({"POSTROOM_DATABASE": self.url} if self._server is None else {})}
        return ChildProcess(
            name=name,
            command=command,
            environment=environment,
            log=self._home / ".postroom" / "logs" / f"{kind}-{host.lower()}.log",
        )

    def _supervise_server(self) -> None:
        if self._server is not None and self._server.pid is None:
            self._report_problem("PostgreSQL has ended; restarting it")
            try:
                self._server.start()
            except Unavailable as error:
                self._report_problem(f"PostgreSQL does not start: {error.why or error.what}")

    def _supervise(self, child: ChildProcess) -> None:
        code = child.poll()
        if code is not None:
            self._report_problem(f"{child.name} ended with exit code {code}; restarting it (log: {child.log})")
        if child.process is None and time.monotonic() >= child.not_before:
            child.start()
            self._report_start(child)

    def _report_start(self, child: ChildProcess) -> None:
        assert child.process is not None
        self._report(f"{child.name} starts as process {child.process.pid}")

    def stop(self) -> None:
        """Stop all processes in order."""
        self._listener.close()
        # Pipelines first: the hosts can still deliver what the pipelines publish until they end.
        for kind in ("pipeline", "host"):
            stopping = [child for child in self._children if child.name.startswith(kind)]
            for child in stopping:
                if child.process is not None:
                    child.process.terminate()
            deadline = time.monotonic() + _STOP_SECONDS
            for child in stopping:
                child.wait(deadline)
