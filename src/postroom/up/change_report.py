"""Reports what changes in a running installation: locations that start or stop receiving, code of orchestrations that
is not loaded, and what is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from postroom.errors import Unavailable
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.running_processes import read_code_problems
from postroom.messagebox.instances import Suspended, SuspendedCount, count_suspended
from postroom.messagebox.intake.location_progress import LocationState
from postroom.operations.ports.receive_locations import describe_running_locations

_REPORT_SECONDS = 1.0

#: Called with a message for the user about each event.
Report = Callable[[str], None]


class ChangeReport:
    """Compares the MessageBox with what was reported before. Problems go to ``report_problem``."""

    def __init__(self, report: Report, report_problem: Report) -> None:
        self._report = report
        self._report_problem = report_problem
        self._next_report = 0.0
        self._locations: dict[str, LocationState] = {}
        self._code_problems: set[str] = set()
        self._next_suspended_count = 0.0
        self._suspended: dict[Suspended, SuspendedCount] | None = None

    def report_if_due(self, url: str) -> None:
        """Report what has changed since the last call, at most once a second. Do nothing if the MessageBox does not
        answer."""
        now = time.monotonic()
        if now < self._next_report:
            return
        self._next_report = now + _REPORT_SECONDS
        try:
            with connect(url, application_name="postroom up") as connection:
                self.report_locations(describe_running_locations(connection))
                self.report_code_problems(read_code_problems(connection))
                if now >= self._next_suspended_count:
                    self.report_suspended(count_suspended(connection))
                    # The count reads everything that is suspended, so it may take 5 % of the time.
                    self._next_suspended_count = now + 20 * (time.monotonic() - now)
        except Unavailable:
            return  # the supervisor reports it

    def report_locations(self, described: Mapping[str, tuple[LocationState, str]]) -> None:
        """Report the locations that start or stop receiving, or fail. ``described`` is the state of each."""
        # A location starts to receive after its process has started, because Spark has to start.
        for name, (state, description) in sorted(described.items()):
            if self._locations.get(name) is not state:
                report = self._report_problem if state is LocationState.FAILING else self._report
                report(f"{name}: {description}")
        for name in sorted(self._locations.keys() - described.keys()):
            self._report(f"{name}: no longer receiving")
        self._locations = {name: state for name, (state, _) in described.items()}

    def report_code_problems(self, problems: set[str]) -> None:
        """Report new reasons why hosts do not load the code of orchestrations."""
        for problem in sorted(problems - self._code_problems):
            self._report_problem(problem)
        self._code_problems = problems

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
                service = suspended.service or "Without a port"
                self._report_problem(f"{service}: {new:,} {what} suspended ({suspended.error_code})")
