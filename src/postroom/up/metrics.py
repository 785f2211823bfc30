"""The metrics of `postroom up`: its processes, and the instances in the MessageBox."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.instances import InstanceCount, count_instances_of_host
from postroom.messagebox.monitored_services import FAILING, MonitoredService
from postroom.monitoring.messagebox_metrics import InstanceMetrics
from postroom.monitoring.metrics import Metric
from postroom.monitoring.server import Target
from postroom.monitoring.services import collect_service_metrics
from postroom.operations.hosts import list_hosts
from postroom.operations.monitored_services import list_monitored_services
from postroom.up.supervisor import Supervisor


class SupervisorMetrics:
    """Collects the metrics of a supervisor."""

    def __init__(self, supervisor: Supervisor, listen: str) -> None:
        self._supervisor = supervisor
        self._listen = f"[{listen}]" if ":" in listen else listen
        self._instances = InstanceMetrics(self._connect, _count_all_instances)

    def collect_metrics(self) -> Iterator[Metric]:
        processes = self._supervisor.processes
        yield Metric(
            "gauge",
            "postroom_process_up",
            "1 if the process runs.",
            {(process.name,): float(process.is_running) for process in processes},
            labels=("process",),
        )
        yield Metric(
            "counter",
            "postroom_process_starts",
            "How often the process was started.",
            {(process.name,): process.starts for process in processes},
            labels=("process",),
        )
        yield from self._instances.collect()
        yield from collect_service_metrics(self._read_services())

    def find_problems(self) -> list[str]:
        """Return the processes that do not run, and why services are failing."""
        database = [] if self._supervisor.has_database else ["PostgreSQL is not running."]
        stopped = [process.name for process in self._supervisor.processes if not process.is_running]
        failing = [
            f"{service.display_name}: {service.reason}"
            for _, service in self._read_services()
            if service.state == FAILING
        ]
        return database + [f"{name} is not running." for name in stopped] + failing

    def _read_services(self) -> list[tuple[str, MonitoredService]]:
        """Return the services of all hosts, or none if the MessageBox does not answer."""
        try:
            with self._connect() as connection:
                return list_monitored_services(connection)
        except PostroomError:
            return []

    def list_targets(self) -> list[Target]:
        """Return the addresses of the metrics of all supervised processes."""
        return [
            Target(targets=[f"{self._listen}:{process.metrics_port}"], labels={"process": process.name})
            for process in self._supervisor.processes
            if process.metrics_port is not None
        ]

    def _connect(self) -> Connection:
        return connect(self._supervisor.url, application_name="postroom up")


def _count_all_instances(connection: Connection) -> list[InstanceCount]:
    return [count for host in list_hosts(connection) for count in count_instances_of_host(connection, host.name)]
