"""The metrics of `postroom up`: its processes, and the instances in the MessageBox."""

from __future__ import annotations

import time
from collections.abc import Iterator

from postroom.errors import PostroomError
from postroom.messagebox.connection import connect
from postroom.monitoring.metrics import Metric
from postroom.monitoring.server import Target
from postroom.operations.instances.listing import QueueCount, count_queues
from postroom.operations.running.supervisor import Supervisor

_COUNT_SECONDS = 10.0


class SupervisorMetrics:
    """Collects the metrics of a supervisor."""

    def __init__(self, supervisor: Supervisor, listen: str) -> None:
        self._supervisor = supervisor
        self._listen = f"[{listen}]" if ":" in listen else listen
        self._queues: list[QueueCount] = []
        self._next_count = 0.0

    def collect_metrics(self) -> Iterator[Metric]:
        processes = self._supervisor.processes
        yield Metric.gauge(
            "postroom_process_up",
            "1 if the process runs.",
            {(process.name,): float(process.is_running) for process in processes},
            labels=("process",),
        )
        yield Metric.counter(
            "postroom_process_starts",
            "How often the process was started.",
            {(process.name,): process.starts for process in processes},
            labels=("process",),
        )
        queues = self._count_queues()
        yield Metric.gauge(
            "postroom_instances",
            "Service instances by host and state.",
            {(queue.host, queue.state.label): queue.count for queue in queues},
            labels=("host", "state"),
        )
        yield Metric.gauge(
            "postroom_oldest_instance_seconds",
            "Age of the oldest service instance by host and state.",
            {
                (queue.host, queue.state.label): queue.age.total_seconds() if queue.age is not None else 0.0
                for queue in queues
            },
            labels=("host", "state"),
        )

    def find_problems(self) -> list[str]:
        """Return the processes that do not run."""
        database = [] if self._supervisor.has_database else ["PostgreSQL is not running."]
        stopped = [process.name for process in self._supervisor.processes if not process.is_running]
        return database + [f"{name} is not running." for name in stopped]

    def list_targets(self) -> list[Target]:
        """Return the addresses of the metrics of all supervised processes."""
        return [
            Target(targets=[f"{self._listen}:{process.metrics_port}"], labels={"process": process.name})
            for process in self._supervisor.processes
            if process.metrics_port is not None
        ]

    def _count_queues(self) -> list[QueueCount]:
        """Count the instances. The count reads all queues, so it may take 5 % of the time."""
        started = time.monotonic()
        if started >= self._next_count:
            try:
                with connect(self._supervisor.url, application_name="postroom up") as connection:
                    self._queues = count_queues(connection)
            except PostroomError:
                self._queues = []
            self._next_count = started + max(_COUNT_SECONDS, 20 * (time.monotonic() - started))
        return self._queues
