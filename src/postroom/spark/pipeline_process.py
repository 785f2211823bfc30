"""`postroom pipeline run`: serve the receive locations and sinks of a host until stopped, or until nothing is left."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from postroom.agent.routing.table import RoutingTable
from postroom.errors import DefinitionError, PostroomError, Unavailable
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.coordination.heartbeat import keep_alive
from postroom.messagebox.coordination.notifications import CONFIGURATION_CHANNEL, Listener
from postroom.messagebox.coordination.running_processes import (
    ProcessKind,
    deregister_process,
    read_routing_version,
    register_process,
    report_configuration,
    report_problems,
)
from postroom.messagebox.monitored_services import (
    LOCATION,
    SINK,
    STARTING,
    MonitoredService,
    read_monitored_services,
)
from postroom.messagebox.throttling.load import Load, read_load
from postroom.monitoring.messagebox_metrics import LoadMetrics
from postroom.monitoring.metrics import Metric
from postroom.monitoring.services import ServiceWatch
from postroom.ports.missing_secrets import find_missing_secrets
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.location_meter import collect_location_metrics
from postroom.receiving.location_runner import LocationRunner
from postroom.receiving.served_locations import read_running_locations, select_locations_to_serve
from postroom.spark.bulk.progress import BulkProgress
from postroom.spark.bulk.row_stream import RunningRowStream
from postroom.spark.bulk.running_bulk_location import RunningBulkLocation
from postroom.spark.receive.running_location import RunningLocation
from postroom.spark.session import has_died, spark_died_error
from postroom.spark.single_run_errors import combine_errors, find_quarantined, stopped_early_error
from postroom.spark.sinks.running_sinks import Sinks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.25
#: Schedules open and close, disabled locations are drained, and the load changes, without a notification.
_SELECT_SECONDS = 2.0
_DRAIN_SECONDS = 30.0
_STARTING_AT_ONCE = max(2, (os.cpu_count() or 1) // 2)

#: A callback that gets the progress of bulk files, and the number of messages that were written to each sink.
Watcher = Callable[[Sequence[BulkProgress], Mapping[str, int]], None]


class PipelineProcess:
    """Serves the receive locations and sinks of a host. The caller owns the Spark session.

    A single run (``once``) receives what is there now, then writes what waits for the sinks, and ends. It tries nothing
    twice, and is not throttled. ``watcher`` gets its progress several times a second."""

    def __init__(
        self,
        session: SparkSession,
        host: Host,
        *,
        login: Login,
        home: Path,
        once: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        self._session = session
        self._host = host
        self._login = login
        self._home = home
        #: Loaded when the first location needs it.
        self._routing = RoutingTable()
        self._runner = LocationRunner(self._start, finish_within=_DRAIN_SECONDS, on_stopped=self._count_stopped)
        self._sinks = Sinks(session, host, login=login, home=home, once=once)
        self._once = once
        self._watcher = watcher
        #: The locations of a single run that are received or cannot be, and why they cannot be.
        self._finished: set[Hashable] = set()
        self._problems: list[PostroomError] = []
        self._progress: dict[str, BulkProgress] = {}
        self._counts: Counter[str] = Counter()
        self._load = LoadMetrics(host, partial(login.connect, "metrics"))
        self._listener = Listener(
            partial(login.connect, "pipeline"), {CONFIGURATION_CHANNEL: self._note_change}, prepare=self._register
        )
        self._services = ServiceWatch(host.name, partial(login.connect, "services"), self._read_services)
        self._process_id = 0
        self._has_changed = True
        #: The configuration that was read last, and its routing version.
        self._locations: list[ReceiveLocation] = []
        self._version = -1
        self._select_at = 0.0

    def run(self, stopping: threading.Event) -> Counter[str]:
        """Serve until ``stopping`` is set, or until a single run is finished. Return the counts of all locations and
        sinks. Raise Unavailable if Spark dies. A single run also raises what it could not do."""
        is_finished = False
        if not self._once:
            self._services.loop.start()  # a single run reports at its end what it could not do
        try:
            while not (is_finished or stopping.is_set() or has_died(self._session, within=0)):
                self._apply_configuration()
                self._check_locations()
                is_finished = self._check_sinks() and self._once
                self._show_progress()
                stopping.wait(0.0 if is_finished else _CHECK_SECONDS)
        except Exception as error:
            if not has_died(self._session):
                raise
            _log.warning("%s", error)
        finally:
            self._stop_all()
        problems = [*self._problems, *self._sinks.problems.values()]
        if not stopping.is_set() and (not is_finished or (problems and has_died(self._session))):
            raise spark_died_error(self._home)
        if self._once and stopping.is_set():
            # Work that was interrupted by the stop is not a problem.
            problems = [problem for problem in problems if not isinstance(problem, Unavailable)]
            problems.insert(0, stopped_early_error())
        if self._once and problems:
            raise combine_errors(problems)
        # Adding counters with + would remove the zeros.
        self._counts.update(self._sinks.counts)
        return self._counts

    def collect_metrics(self) -> Iterator[Metric]:
        """Yield the metrics of the process."""
        stopping = [running for running, _ in self._runner.stopping.copy().values()]
        running = [*self._runner.running.copy().values(), *stopping]
        yield from collect_pipeline_metrics(self._host.name, running, self._sinks)
        yield from self._load.collect()
        yield from self._services.collect()

    def find_problems(self) -> list[str]:
        """Return the reasons why the process cannot do its work at the moment."""
        if self._listener.connection is None:
            return ["The MessageBox does not answer."]
        return self._services.find_problems()

    def _read_services(self, connection: Connection) -> list[MonitoredService]:
        """Return the sinks, and the locations that this process serves. One without a report is starting."""
        served = {*self._runner.running.copy(), *self._runner.problems.copy()}
        return [
            replace(service, state=service.state or STARTING)
            for service in read_monitored_services(connection, self._host.name)
            if service.kind == SINK or (service.kind == LOCATION and service.service_id in served)
        ]

    def _apply_configuration(self) -> None:
        """Start, stop and restart locations as configured. A disabled location receives nothing (ORS-07)."""
        if self._listener.connection is None and time.monotonic() < self._select_at:
            return
        try:
            connection = self._listener.get()
            if not self._has_changed and time.monotonic() < self._select_at:
                return
            self._select_at = time.monotonic() + _SELECT_SECONDS
            self._read_configuration(connection)
            load = None if self._once else read_load(connection, self._host.host_id)
            wanted = {one.location_id: one for one in select_locations_to_serve(connection, self._locations)}
            self._runner.apply({key: location for key, location in wanted.items() if key not in self._finished})
            problems = self._runner.problems.items()
            report_problems(connection, self._process_id, {key: why for key, why in problems if isinstance(key, UUID)})
            stopping = self._runner.stopping.values()
            if stopping:
                self._select_at = 0.0  # a changed location is restarted at once
            if not any(running.takes_input for running, _ in stopping):
                report_configuration(connection, self._process_id, self._version)
        except Unavailable as error:
            if self._once:
                raise
            _log.warning("the configuration cannot be read: %s", str(error).strip().replace("\n", " "))
            self._listener.close()
            self._select_at = time.monotonic() + _SELECT_SECONDS
            return
        self._report_throttles(load)

    def _read_configuration(self, connection: Connection) -> None:
        """Read the configuration if it may have changed."""
        if not self._has_changed:
            return
        self._has_changed = False
        version = read_routing_version(connection)  # first, so that no later change is reported as taken
        self._locations = read_running_locations(connection, self._host)
        if version != self._version:
            self._sinks.check_classes(connection)
            for missing in find_missing_secrets(connection, host_id=self._host.host_id, in_spark=True):
                _log.warning("%s", missing)
            self._version = version

    def _note_change(self) -> None:
        self._has_changed = True

    def _register(self, connection: Connection) -> None:
        keep_alive(connection)
        self._process_id = register_process(connection, self._host.host_id, ProcessKind.PIPELINE)
        self._note_change()  # changes may have been missed

    def _start(self, location: ReceiveLocation) -> RunningLocation:
        running = choose_running_class(location)(
            self._session, location, login=self._login, home=self._home, once=self._once
        )
        running.routing = self._routing
        running.start()
        return running

    def _count_stopped(self, running: RunningLocation) -> None:
        self._counts.update(running.meter.counts)
        self._read_progress(running)

    def _read_progress(self, running: RunningLocation) -> None:
        if isinstance(running, RunningBulkLocation) and running.last_progress is not None:
            self._progress[running.location.name] = running.last_progress

    def _show_progress(self) -> None:
        if self._watcher is not None:
            for running in self._runner.running.values():
                self._read_progress(running)
            self._watcher(list(self._progress.values()), self._sinks.written)

    def _check_locations(self) -> None:
        """Check all locations, and start only a few streams at a time. Each starts a Python process that has to answer
        within ten seconds. On a busy machine none would, if all started together."""
        for running in self._runner.running.values():
            starting = sum(location.is_starting for location in self._runner.running.values())
            running.supervise(may_start=starting < _STARTING_AT_ONCE)
        connection = self._listener.connection
        if self._once and connection is not None:
            self._finish_locations(connection)

    def _finish_locations(self, connection: Connection) -> None:
        """Find the locations of a single run that are received, or cannot be. They are stopped in a moment."""
        problems: dict[Hashable, PostroomError | None] = {
            key: Unavailable(problem) for key, problem in self._runner.problems.items()
        }
        for key, running in self._runner.running.items():
            if running.is_done or running.problem is not None:
                problems[key] = running.problem or find_quarantined(connection, running.location)
        for key in problems.keys() - self._finished:
            self._finished.add(key)
            self._select_at = 0.0
            if (problem := problems[key]) is not None:
                _log.warning("%s", str(problem).replace("\n", " "))
                self._problems.append(problem)

    def _check_sinks(self) -> bool:
        """Start to write what waits. Return False while a sink is written. The sinks of a single run are written after
        all its locations are received."""
        connection = self._listener.connection
        if connection is None:
            return False
        try:
            if self._once and (self._runner.running or self._runner.stopping):
                self._sinks.report_served(connection)
                return False
            return self._sinks.check(connection)
        except Unavailable as error:
            if self._once:
                raise
            _log.warning("the sinks cannot be read: %s", str(error).strip().replace("\n", " "))
            self._listener.close()
            return False

    def _report_throttles(self, load: Load | None) -> None:
        """Log the start and the end of throttling. The sources of the streams slow down by themselves."""
        started, ended, reason = [], [], ""
        for running in self._runner.running.values():
            throttle = None if load is None else load.get_throttle(running.location.location_id)
            if throttle is not None and running.throttle is None:
                started.append(running.location.name)
                reason = throttle.reason
            elif throttle is None and running.throttle is not None:
                ended.append(running.location.name)
            running.throttle = throttle
        if started:
            _log.warning("receiving is throttled at %s: %s", ", ".join(sorted(started)), reason)
        if ended:
            _log.info("receiving is no longer throttled at %s", ", ".join(sorted(ended)))

    def _stop_all(self) -> None:
        self._services.loop.stop()
        self._services.loop.join()
        self._services.close()
        self._runner.stop(within=0.0)
        self._runner.join()
        self._sinks.stop()
        self._load.close()
        if self._listener.connection is not None:
            with suppress(PostroomError):
                deregister_process(self._listener.connection, self._process_id)
            self._listener.close()


def choose_running_class(location: ReceiveLocation) -> type[RunningLocation]:
    """Return the class that runs a receive location."""
    try:
        if location.adapter.is_row_stream:
            return RunningRowStream
        return RunningBulkLocation if location.adapter.reads_rows else RunningLocation
    except DefinitionError:
        # Its adapter cannot be loaded. The location reports that when it starts.
        return RunningLocation


def collect_pipeline_metrics(host: str, running: Sequence[RunningLocation], sinks: Sinks) -> Iterator[Metric]:
    """Yield the metrics of the pipeline process of a host."""
    yield from collect_location_metrics(host, {location.location.name: location.meter for location in running})
    yield Metric(
        "summary",
        "postroom_receive_seconds",
        "Time from the arrival of a file or an interchange to its publication.",
        {
            (host, location.location.name): (location.meter.counts["files"], location.meter.milliseconds / 1000)
            for location in running
        },
        labels=("host", "location"),
    )
    yield Metric(
        "counter",
        "postroom_batches",
        "Batches of Spark that have ended at the location since it was started.",
        {(host, location.location.name): location.batches for location in running},
        labels=("host", "location"),
    )
    yield Metric(
        "counter",
        "postroom_sink_batches",
        "Batches that were written to the sink since the process was started.",
        {(host, sink): count for sink, count in sinks.batches.copy().items()},
        labels=("host", "sink"),
    )
    yield Metric(
        "counter",
        "postroom_sink_messages",
        "Messages that were written to the sink since the process was started.",
        {(host, sink): count for sink, count in sinks.written.copy().items()},
        labels=("host", "sink"),
    )
