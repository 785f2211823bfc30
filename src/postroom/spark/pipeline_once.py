"""`postroom pipeline run --once`: receive what is there now, write what waits, and end."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import MessageBoxUnavailable, PostroomError, StateError, Unavailable
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Login
from postroom.messagebox.streams.intake import read_quarantined
from postroom.messagebox.streams.sink_progress import lock_sinks_served
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.intake import find_locations_to_serve
from postroom.spark.bulk.progress import BulkProgress
from postroom.spark.bulk.running_bulk_location import RunningBulkLocation
from postroom.spark.error_reasons import format_reason
from postroom.spark.pipeline_process import choose_running_class
from postroom.spark.receive.task import format_tally
from postroom.spark.session import has_died
from postroom.spark.sinks.drain import SinkWritten
from postroom.spark.sinks.running_sinks import Sinks, served_by_other_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: Maximum number of quarantined files that an error names.
_MAX_NAMES = 5


#: A callback that gets the progress of bulk files and of sinks. The sinks call it from several threads.
OnceWatcher = Callable[[BulkProgress | SinkWritten], None]


def _ignore_progress(progress: object) -> None:
    """Sinks log each batch."""


class PipelineOnce:
    """Serves the receive locations and sinks of a host one after the other. The caller owns the Spark session."""

    def __init__(self, session: SparkSession, host: Host, *, login: Login, home: Path) -> None:
        self._session = session
        self._host = host
        self._login = login
        self._home = home
        self._sinks = Sinks(session, host, login=login, home=home)
        self._counts: Counter[str] = Counter()

    def run(self, stopping: threading.Event, watcher: OnceWatcher | None = None) -> Counter[str]:
        """Receive what is there now, then drain the sinks. A location or sink that fails does not delay the others.
        Its error is raised at the end."""
        problems: list[PostroomError] = []
        with self._login.connect("pipeline") as connection:
            # The sinks are drained after all locations.
            lock_sinks_served(connection, self._host.host_id)
            for location in find_locations_to_serve(connection, self._host):
                if not stopping.is_set():
                    problems += self._receive_location(location, stopping, watcher)
            problems += self._sinks.drain_all(connection, stopping, watcher or _ignore_progress)
        if stopping.is_set():
            problems.insert(0, stopped_early_error())
        if problems:
            raise _combine_errors(problems)
        # Adding counters with + would remove the zeros.
        self._counts.update(self._sinks.counts)
        return self._counts

    def _receive_location(
        self, location: ReceiveLocation, stopping: threading.Event, watcher: OnceWatcher | None
    ) -> list[PostroomError]:
        before = Counter(self._counts)
        problems: list[PostroomError] = []
        try:
            self._receive_all(location, stopping, watcher)
            problems = self._find_quarantined_files(location)
        except MessageBoxUnavailable:
            raise  # it affects every location
        except PostroomError as error:
            problems = [error]
        except Exception as error:
            if has_died(self._session):
                raise
            problems = [Unavailable(f"{location.name} could not be received.", why=format_reason(error))]
        for problem in problems:
            _log.warning("%s", str(problem).replace("\n", " "))
        if stopping.is_set():
            # Work that was interrupted by the stop is not a problem.
            problems = [problem for problem in problems if not isinstance(problem, Unavailable)]
        _log.info("%s: %s", location.name, format_tally(self._counts - before))
        return problems

    def _find_quarantined_files(self, location: ReceiveLocation) -> list[PostroomError]:
        with self._login.connect("claims") as connection:
            left = read_quarantined(connection, location.location_id)
        if not left:
            return []
        names = ", ".join(name for name, _ in left[:_MAX_NAMES]) + (", …" if len(left) > _MAX_NAMES else "")
        return [
            StateError(
                f"{location.name}: {len(left)} quarantined: {names}.",
                why=f"{left[0][0]} {left[0][1]}",
                hint="See postroom location list. The next run tries them again.",
            )
        ]

    def _receive_all(self, location: ReceiveLocation, stopping: threading.Event, watcher: OnceWatcher | None) -> None:
        running = choose_running_class(location)(self._session, location, login=self._login, home=self._home, once=True)
        if watcher is not None and isinstance(running, RunningBulkLocation):
            running.watcher = watcher
        try:
            is_ours = running.receive_all(stopping)
        finally:
            self._counts.update(running.meter.counts)
        if not is_ours:
            raise served_by_other_error(location.name)


def stopped_early_error() -> PostroomError:
    """Return the error for a run that was stopped early."""
    return Unavailable(
        "The run was stopped before it was finished.",
        hint="Run it again. It continues where it stopped, and nothing is published twice.",
    )


def _combine_errors(problems: Sequence[PostroomError]) -> PostroomError:
    """Return one error for all. Its type is that of the first."""
    first = problems[0]
    if len(problems) == 1:
        return first
    why = " ".join(f"{problem.what} {problem.why}".strip() for problem in problems[1:])
    return type(first)(
        f"{len(problems)} problems occurred. {first.what}", why=f"{first.why} {why}".strip(), hint=first.hint
    )
