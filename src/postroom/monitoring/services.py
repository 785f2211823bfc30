"""Monitoring of services: one mechanism for every kind of subscriber and receive location.

A process watches the services that it serves, `postroom up` those of all hosts. Each reads them from the MessageBox
(messagebox/monitored_services.py), and has from them its metrics, its readiness and a line for each change of state.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator

from postroom.errors import PostroomError, format_count
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.monitored_services import (
    FAILING,
    LOCATION,
    STARTING,
    MonitoredService,
)
from postroom.monitoring.metrics import Metric
from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)

#: Called with a line for the user about each event.
Report = Callable[[str], None]

_READ_SECONDS = 5.0


class ServiceChanges:
    """Reports each change of the state of a service once. Problems go to ``report_problem``."""

    def __init__(self, report: Report, report_problem: Report) -> None:
        self._report = report
        self._report_problem = report_problem
        self._known: dict[uuid.UUID, MonitoredService] = {}

    def report(self, services: Iterable[MonitoredService]) -> None:
        """Report what has changed since the last call. Of a service that is new, report that it fails or receives."""
        found = {service.service_id: service for service in services}
        for service in found.values():
            before = self._known.get(service.service_id)
            self._report_state(service, None if before is None else before.state)
            more = service.quarantined - (0 if before is None else before.quarantined)
            if more > 0:
                others = f"{format_count(more, 'file')} are in quarantine. The last: " if more > 1 else ""
                self._report_problem(f"{service.display_name}: {others}{service.last_problem}")
        for service_id in self._known.keys() - found.keys():
            gone = self._known[service_id]
            if gone.kind == LOCATION and gone.state not in (None, STARTING):
                self._report(f"{gone.display_name}: no longer receiving")
        self._known = found

    def _report_state(self, service: MonitoredService, before: str | None) -> None:
        name, state = service.display_name, service.state
        if state == before:
            return
        if state == FAILING:
            self._report_problem(f"{name}: {_to_line(service.reason)}")
        elif service.kind == LOCATION:
            if state not in (None, STARTING):
                self._report(f"{name}: {_to_line(service.reason) if service.reason else state}")
            elif before not in (None, STARTING):
                self._report(f"{name}: no longer receiving")
        elif before == FAILING:
            self._report(f"{name}: no longer failing")
        elif before is not None:
            self._report(f"{name}: {state}")


class ServiceWatch:
    """Watches the services that ``read`` returns, and logs each change of their states."""

    def __init__(self, host: str, connect: Connect, read: Callable[[Connection], list[MonitoredService]]) -> None:
        self._host = host
        self._connection = LazyConnection(connect)
        self._read = read
        self._changes = ServiceChanges(_log.info, _log.warning)
        self._lock = threading.Lock()
        self.loop = BackgroundLoop("services", self._step)

    def close(self) -> None:
        self._connection.close()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the services. There are none without the MessageBox."""
        return collect_service_metrics((self._host, service) for service in self._read_now() or ())

    def find_problems(self) -> list[str]:
        """Return which services are starting, and why others are failing."""
        return [
            f"{service.display_name} is starting."
            if service.state == STARTING
            else f"{service.display_name}: {_to_line(service.reason)}"
            for service in self._read_now() or ()
            if service.state in (STARTING, FAILING)
        ]

    def _step(self) -> float:
        started = time.monotonic()
        services = self._read_now()
        if services is not None:
            self._changes.report(services)
        # It reads all queues, so it may take 1 % of the time.
        return max(_READ_SECONDS, 100 * (time.monotonic() - started))

    def _read_now(self) -> list[MonitoredService] | None:
        """Return None if the MessageBox does not answer, which other parts of the process report."""
        with self._lock:
            try:
                return self._read(self._connection.get())
            except PostroomError:
                self._connection.close()
                return None


def collect_service_metrics(services: Iterable[tuple[str, MonitoredService]]) -> Iterator[Metric]:
    """Yield the metrics of services, each with the name of its host."""
    labels = ("host", "kind", "service")
    known = {(host, one.kind, one.display_name): one for host, one in services}
    yield Metric(
        "gauge",
        "postroom_service_state",
        "1 for the state of the service: failing; bound, stopped, started or unused; a location is starting, receiving"
        " or throttled.",
        {(*key, one.state): 1.0 for key, one in known.items() if one.state is not None},
        labels=(*labels, "state"),
    )
    yield Metric(
        "gauge",
        "postroom_service_messages",
        "Messages of the service: waiting, of them waiting to retry, suspended, and files or requests in quarantine.",
        {
            (*key, state): count
            for key, one in known.items()
            for state, count in (
                ("waiting", one.waiting),
                ("waiting to retry", one.retrying),
                ("suspended", one.suspended),
                ("quarantined", one.quarantined),
            )
        },
        labels=(*labels, "state"),
    )
    yield Metric(
        "gauge",
        "postroom_service_oldest_seconds",
        "Age of the oldest message that waits for the service.",
        {key: one.age for key, one in known.items()},
        labels=labels,
    )


def _to_line(reason: str | None) -> str:
    return " ".join((reason or FAILING).split())
