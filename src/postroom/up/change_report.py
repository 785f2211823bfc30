"""Reports what changes in a running installation: the states of services, and what is suspended."""

from __future__ import annotations

import time

from postroom.errors import Unavailable
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import Suspended, SuspendedCount, count_suspended
from postroom.monitoring.services import Report, ServiceChanges
from postroom.operations.monitored_services import list_monitored_services

_REPORT_SECONDS = 1.0


class ChangeReport:
    """Compares the MessageBox with what was reported before. Problems go to ``report_problem``."""

    def __init__(self, report: Report, report_problem: Report) -> None:
        self._report_problem = report_problem
        self._services = ServiceChanges(report, report_problem)
        self._next_report = 0.0
        self._suspended: dict[Suspended, SuspendedCount] | None = None

    def report_if_due(self, url: str) -> None:
        """Report what has changed since the last call, at most once a second. Do nothing if the MessageBox does not
        answer."""
        started = time.monotonic()
        if started < self._next_report:
            return
        try:
            with connect(url, application_name="postroom up") as connection:
                # A location starts to receive after its process has started, because Spark has to start.
                self._services.report(service for _, service in list_monitored_services(connection))
                self.report_suspended(count_suspended(connection))
        except Unavailable:
            pass  # the supervisor reports it
        # It reads all queues, so it may take 5 % of the time.
        self._next_report = started + max(_REPORT_SECONDS, 20 * (time.monotonic() - started))

    def report_suspended(self, counts: dict[Suspended, SuspendedCount]) -> None:
        """Report how many messages and instances were suspended since the last call."""
        before, self._suspended = self._suspended, counts
        if before is None:
            return  # suspended before this process has started
        for suspended, now in sorted(counts.items()):
            earlier = before.get(suspended)
            new = now.count - (earlier.count if earlier else 0)
            if new <= 0 and earlier and now.last_at > earlier.last_at:
                new = 1  # an ordered port was resumed and suspended again
            if new > 0:
                what = f"{suspended.what} was" if new == 1 else f"{suspended.what}s were"
                service = suspended.service or "Published by programs"
                self._report_problem(f"{service}: {new:,} {what} suspended ({suspended.error_code})")
