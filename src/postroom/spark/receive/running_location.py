"""A running receive location: a background loop for the intake, and a streaming query that publishes. Each is restarted
after a failure."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.clock import Clock, system_clock
from postroom.errors import MessageBoxUnavailable, PostroomError, Unavailable
from postroom.messagebox.connection import Connection, LazyConnection, Login
from postroom.messagebox.intake.location_progress import LocationProgress, LocationReport, LocationState
from postroom.ports.receive_locations import ReceiveLocation
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.files.file_receive_adapter import FileReceiveAdapter
from postroom.receiving.files.folder_watch import FolderWatch
from postroom.receiving.files.lone_files import LoneFiles, can_receive_lone_files
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.receiving.location_meter import LocationMeter
from postroom.receiving.location_runner import Running
from postroom.receiving.numbered_receive_adapter import NumberedReceiveAdapter
from postroom.receiving.served_locations import LastScan, is_drained, is_served_as_configured
from postroom.receiving.task import MILLISECONDS, Worker, count_outcomes
from postroom.spark.error_reasons import format_reason
from postroom.spark.receive.stream import TRIGGER, start_stream
from postroom.spark.receive.task import TALLY_COLUMNS, TALLY_METRIC, format_tally
from postroom.spark.single_run_errors import served_by_other_error
from postroom.throttling.states import Throttle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

_SCAN_INTERVAL = timedelta(milliseconds=100)
_MIN_WAIT_SECONDS = 0.02
#: The time between two checks whether another process has released the location.
_STANDBY_SECONDS = 1.0
_QUERY_BACKOFF, _INTAKE_BACKOFF = Backoff(first=0.5, longest=30.0), Backoff(first=0.5, longest=5.0)
_BATCH_SECONDS, _TALLY_SECONDS = 5.0, 20.0


class RunningLocation(Running):
    """Serves a location between ``start`` and ``stop``. One thread calls ``supervise`` several times a second.

    With ``once`` it claims what is there now, and is not throttled. It ``is_done`` when that is published."""

    #: The first batch of the query is an empty one, which starts the Python workers.
    _starts_with_warm_up = True

    def __init__(
        self,
        session: SparkSession,
        location: ReceiveLocation,
        *,
        login: Login,
        home: Path,
        clock: Clock = system_clock,
        trigger: str = TRIGGER,
        once: bool = False,
    ) -> None:
        self.location = location
        self.meter = LocationMeter(location.location_id, clock)
        #: The number of batches of Spark that have ended.
        self.batches = 0
        #: None while receiving is not throttled.
        self.throttle: Throttle | None = None
        #: The subscriptions, if this process may receive small files itself. Set before ``start``.
        self.routing: RoutingTable | None = None
        self._session = session
        self._login = login
        self._home = home
        self._clock = clock
        self._trigger = trigger
        self._once = once
        #: For a single run: nothing is left to publish.
        self.is_done = False
        #: For a single run: why it could not receive everything.
        self.problem: PostroomError | None = None
        self._last_scan = LastScan(location) if once else None
        self._has_claimed_all = False
        self._intake_stopped = threading.Event()
        #: Set while this process serves the location, and no other one.
        self._is_served_here = threading.Event()
        self._intake_loop = BackgroundLoop(f"intake of {location.name}", self._run_intake, backoff=_INTAKE_BACKOFF)
        self._intake_connection = LazyConnection(partial(login.connect, "claims"))
        self._adapter: NumberedReceiveAdapter | None = None
        self._watch: FolderWatch | None = None
        #: The watch has caused the last scan.
        self._was_woken = False
        #: A scan has opened the watched folder, so that it was there.
        self._has_scanned = False
        self._report = LocationReport()
        self._query: StreamingQuery | None = None
        #: The source of the query has answered: another query may start.
        self._has_answered = False
        #: The query is ready to receive: its Python workers have started.
        self._is_warm = False
        self._last_batch_id = -1
        self._progress_at = ""
        self._start_at = 0.0
        self._query_failures = 0
        self._failure: str | None = None
        self._intake_failure: str | None = None

    def start(self) -> None:
        self._intake_loop.start()

    @property
    def is_starting(self) -> bool:
        """Return True if the query was started and has not answered yet."""
        return self._query is not None and not self._has_answered

    @property
    def takes_input(self) -> bool:
        """Return True until ``stop`` has stopped the intake. From then on only a later definition of the location
        takes anything in."""
        return not self._intake_stopped.is_set()

    def supervise(self, *, may_start: bool = True) -> None:
        """Start the query if it may start, restart it after a failure, and read its progress."""
        self._read_progress()
        if self._query is not None and not self._query.isActive:
            self._handle_query_end()
        if not self._is_served_here.is_set():
            self._stop_query()  # another process serves the location
        elif self._query is None and may_start and not self.is_done and time.monotonic() >= self._start_at:
            self._has_answered = self._is_warm = False
            self._last_batch_id = -1
            try:
                self._query = self._start_query()
            except Exception as error:
                # A missing source or column does not affect other locations.
                self._schedule_restart(f"the stream cannot be started: {format_reason(error)}", error)

    def stop(self) -> None:
        """Stop the intake, publish what was claimed or numbered if that is possible in time, and stop the query."""
        self._stop_intake()
        try:
            self._wait_until_published()
            self._stop_query()
        except Exception as error:
            # The query of a JVM that has died. Why it died is reported elsewhere.
            _log.warning("%s: %s", self.location.name, format_reason(error))

    def _wait_until_published(self) -> None:
        if not self._can_publish():
            return
        with suppress(PostroomError), self._login.connect("drain") as connection:
            while self._can_publish() and not is_drained(connection, self.location):
                self._read_progress()
                time.sleep(0.05)

    def _can_publish(self) -> bool:
        return self._is_publishing() and time.monotonic() < self.finish_by

    def _is_publishing(self) -> bool:
        return self._query is not None and self._query.isActive

    # -- the query ---------------------------------------------------------------------------------------------

    def _start_query(self) -> StreamingQuery:
        return start_stream(
            self._session,
            self.location,
            login=self._login,
            home=self._home,
            trigger=self._trigger,
            paced=not self._once,
        )

    def _handle_query_end(self) -> None:
        assert self._query is not None
        self._read_progress()
        error = self._query.exception()
        self._query = None
        if error is not None:
            self._schedule_restart(f"the stream failed: {format_reason(error)}", error)
        elif self._once and self.location.adapter.is_row_stream:
            self.is_done = True
        else:
            self._schedule_restart("the stream ended")

    def _schedule_restart(self, failure: str, error: Exception | None = None) -> None:
        self._failure = failure
        if error is not None:
            self._set_problem(error)
        _log.debug("%s: %s", self.location.name, failure)  # the process logs it once, from the report
        self._query_failures += 1
        self._start_at = time.monotonic() + _QUERY_BACKOFF.delay(self._query_failures)

    def _stop_query(self) -> None:
        if self._query is None:
            return
        # An interrupted batch does no harm, but it would run again at the next start. A batch that has published
        # everything only has to report its tally.
        if not self._wait_for_batch(self._query, _BATCH_SECONDS) and self._has_published_all():
            self._wait_for_batch(self._query, _TALLY_SECONDS)
        self._query.stop()
        self._read_progress()
        self._query = None

    def _wait_for_batch(self, query: StreamingQuery, timeout: float) -> bool:
        """Wait for the end of the current batch. Return False after the timeout."""
        deadline = time.monotonic() + timeout
        while query.isActive and query.status["isTriggerActive"]:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def _has_published_all(self) -> bool:
        with suppress(PostroomError), self._login.connect("drain") as connection:
            return not self.location.adapter.is_row_stream and is_drained(connection, self.location)
        return False

    def _read_progress(self) -> None:
        if self._query is None:
            return
        # Called four times a second: the last progress is cheaper to read than all of them.
        latest = self._query.lastProgress
        # The progress of a batch is known at its end.
        if not self._has_answered:
            self._has_answered = latest is not None or self._query.status["isDataAvailable"]
        if not self._is_warm and (latest is not None or (self._has_answered and not self._starts_with_warm_up)):
            self._is_warm = True
            _log.info("%s: receiving", self.location.name)
        if latest is None or latest.timestamp == self._progress_at:
            return
        self._progress_at = latest.timestamp
        self._failure = None
        for progress in self._query.recentProgress:
            if progress.batchId > self._last_batch_id and progress.observedMetrics:
                self._last_batch_id = progress.batchId
                self.batches += 1
                tally = progress.observedMetrics[TALLY_METRIC]
                self._query_failures = 0
                self._failure = None
                self._count({name: int(tally[name] or 0) for name in TALLY_COLUMNS})

    def _count(self, done: dict[str, int]) -> None:
        """Add a tally, of a batch or of a file that was received alone."""
        self.meter.add(done, milliseconds=done.pop(MILLISECONDS))
        if any(done.values()):
            _log.info("%s: %s", self.location.name, format_tally(done))

    # -- the intake --------------------------------------------------------------------------------------------

    def _run_intake(self) -> float:
        """Scan once. Return the seconds until the next scan."""
        try:
            return self._scan(self._intake_connection.get())
        except Exception:
            self._adapter = None
            self._has_claimed_all = False
            self._close_watch()
            self._intake_connection.close()
            raise

    def _scan(self, connection: Connection) -> float:
        try:
            if self._adapter is None:
                if not is_served_as_configured(connection, self.location, self._clock):
                    self._is_served_here.clear()
                    return _STANDBY_SECONDS  # it is about to be replaced
                self._adapter = self._make_adapter(connection, makes_folder=not self._has_scanned)
                if self.location.watched_folder is not None:
                    self._watch = FolderWatch(self.location.watched_folder.folder(self._home))
            if self._has_claimed_all:
                return self._wait_in_single_run(connection)
            was_drained = self._last_scan is not None and is_drained(connection, self.location)
            scan = self._adapter.scan()
            self._has_scanned = self._has_scanned or scan.active
        except MessageBoxUnavailable:
            raise  # the failure cannot be reported over this connection
        except Exception as error:
            self._intake_failure = f"the intake failed: {format_reason(error)}"
            self._set_problem(error)
            self._report.store(connection, self.get_progress())
            raise
        self._intake_failure = None
        if not scan.active:
            self._is_served_here.clear()
            self._set_problem(served_by_other_error(self.location.name))
            return _STANDBY_SECONDS
        self._is_served_here.set()
        self._has_claimed_all = self._last_scan is not None and self._last_scan.is_last(scan, is_drained=was_drained)
        self._report.store(connection, self.get_progress())
        seconds = max(self._adapter.next_scan_in(_SCAN_INTERVAL).total_seconds(), _MIN_WAIT_SECONDS)
        if self._watch is None or self._was_woken or scan.claimed or scan.more:
            # While many files come, each scan claims several, and files that do not match cause few scans.
            self._was_woken = False
            return seconds
        self._was_woken = self._watch.wait(seconds)
        return 0.0

    def _wait_in_single_run(self, connection: Connection) -> float:
        """Wait until what was claimed is published. The end of its query is the end of a row stream."""
        if self._has_received_all(connection):
            self.is_done = True
        self._report.store(connection, self.get_progress())
        return _SCAN_INTERVAL.total_seconds()

    def _has_received_all(self, connection: Connection) -> bool:
        return not self.location.adapter.is_row_stream and is_drained(connection, self.location)

    def _set_problem(self, error: Exception) -> None:
        if not isinstance(error, PostroomError):
            error = Unavailable(f"{self.location.name} could not be received.", why=format_reason(error))
        self.problem = error

    def _make_adapter(self, connection: Connection, *, makes_folder: bool = True) -> NumberedReceiveAdapter:
        """Return the receive adapter that claims for the stream. With ``makes_folder``, create the watched folder if it
        is missing."""
        location = self.location
        if location.watched_folder is None:
            return InboxReceiveAdapter(connection, location, connect=partial(self._login.connect, "inbox"))
        receive_alone = None
        if self.routing is not None and can_receive_lone_files(location):
            # It reads the subscriptions at the first file: the stream must be able to start while they are locked.
            worker = Worker(
                connection=connection,
                receiver=Receiver(connection, self.routing),
                connect=partial(self._login.connect, "attempts"),
            )
            receive_alone = LoneFiles(
                worker,
                location,
                self._home.absolute(),
                is_throttled=lambda: self.throttle is not None,
                report=lambda received: self._count(count_outcomes(received)),
            ).receive
        claimer = FileClaimer(
            connection, location, self._home, self._clock, makes_folder=makes_folder, receive_alone=receive_alone
        )
        return FileReceiveAdapter(connection, location, self._home, claimer=claimer)

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch = None

    def _stop_intake(self) -> None:
        self._intake_loop.stop()
        self._intake_loop.join()
        if self._adapter is not None:
            with suppress(PostroomError):
                self._report.delete(self._intake_connection.get(), self.location.location_id)
                self._adapter.close()
        self._adapter = None
        self._close_watch()
        self._intake_connection.close()
        self._intake_stopped.set()

    def get_progress(self) -> LocationProgress:
        """Return the state of the location, and what it has received since its start."""
        state, reason = LocationState.RECEIVING if self._is_warm else LocationState.STARTING, None
        throttle = self.throttle
        if throttle is not None:
            state = LocationState.THROTTLED
            reason = f"{throttle.reason}; batches are small, and {throttle.delay:.1f} s apart"
        failure = self._failure or self._intake_failure
        if failure is not None:
            state, reason = LocationState.FAILING, failure
        return self.meter.build_progress(state, reason)
