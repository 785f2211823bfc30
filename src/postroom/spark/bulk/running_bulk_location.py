"""A running receive location over bulk files: one background loop claims files, another runs jobs of Spark."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.clock import Clock, system_clock
from postroom.errors import PostroomError, StateError, Unavailable
from postroom.messagebox.connection import Connection, LazyConnection, Login
from postroom.messagebox.streams.location_progress import LocationProgress
from postroom.ports.receive_locations import ReceiveLocation
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.spark.bulk.bulk_files import BulkFiles
from postroom.spark.bulk.progress import BulkMeter, BulkProgress, BulkWatcher
from postroom.spark.error_reasons import format_reason
from postroom.spark.receive.running_location import RunningLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_CHECK_SECONDS, _WATCH_SECONDS = 0.2, 0.5
_PROGRESS_SECONDS, _LOG_SECONDS = 2.0, 10.0
_BACKOFF = Backoff(first=0.5, longest=30.0)


class RunningBulkLocation(RunningLocation):
    """Serves a location without a streaming query, so that it costs nothing while no files arrive."""

    def __init__(
        self,
        session: SparkSession,
        location: ReceiveLocation,
        *,
        login: Login,
        home: Path,
        clock: Clock = system_clock,
        once: bool = False,
    ) -> None:
        super().__init__(session, location, login=login, home=home, clock=clock, once=once)
        self._has_answered = self._is_warm = True  # there is no query to wait for
        self._files = BulkFiles(session, location, login=login, home=home, paced=not once)
        self.meter.counts = self._files.counts
        self._jobs = BackgroundLoop(f"jobs of {location.name}", self._publish, backoff=_BACKOFF)
        self._jobs_connection = LazyConnection(partial(login.connect, "bulk"))
        self._meter = BulkMeter(location.name, location.location_id)
        self._last_progress: BulkProgress | None = None
        #: Gets the progress of a single run.
        self.watcher: BulkWatcher = self._log_progress
        self._progress_due_at = 0.0
        self._log_due_at = time.monotonic() + _LOG_SECONDS if once else 0.0
        self._file_at = time.monotonic()

    def start(self) -> None:
        super().start()
        self._jobs.start()
        _log.info("%s: receiving", self.location.name)

    def supervise(self, *, may_start: bool = True) -> None:
        """Log the progress. A location that has stopped because of bad rows claims no more files."""
        if self._files.stopped_by and not self._intake_loop.stopping:
            self._stop_intake()
        now = time.monotonic()
        if self._files.is_busy and now >= self._progress_due_at:
            self._progress_due_at = now + _PROGRESS_SECONDS
            with suppress(PostroomError), self._login.connect("progress") as connection:
                self._last_progress = self._meter.read(connection, now)
                self._log_progress(self._last_progress)

    def _log_progress(self, progress: BulkProgress) -> None:
        """Log the progress every ten seconds."""
        if time.monotonic() >= self._log_due_at:
            self._log_due_at = time.monotonic() + _LOG_SECONDS
            _log.info("%s", progress)

    def _stop_query(self) -> None:
        """Cancel the job. The next process continues where this one stopped."""
        self._jobs.stop()
        while not self._jobs.join(0.0):
            # Repeatedly: the job may be about to start.
            with suppress(Exception):  # Spark may have died
                self._files.cancel()
            self._jobs.join(0.5)
        self._jobs_connection.close()

    def _is_publishing(self) -> bool:
        return not self._files.stopped_by

    def get_progress(self) -> LocationProgress:
        """Return the progress in bytes of finished splits. A running job may have published more rows than the finished
        jobs have counted."""
        known = replace(super().get_progress(), remaining_unit="bytes", remaining=0)
        progress = self._last_progress
        if progress is None:
            return known
        # The number never goes back, although a reading counts rows without a subscriber as published.
        known = replace(known, rows=max(known.rows, progress.rows - progress.bad))
        if not self._files.is_busy:
            return known
        return replace(known, rate=round(progress.rate), remaining=progress.bytes_left)

    def _has_to_wait(self) -> bool:
        """Return True while another process serves the location, or while receiving is throttled."""
        throttle = self.throttle
        throttled = throttle is not None and time.monotonic() < self._file_at + throttle.delay
        return throttled or not self._is_served_here.is_set()

    # -- the jobs ----------------------------------------------------------------------------------------------

    def _publish_all(self, connection: Connection, stopping: threading.Event) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix=f"jobs of {self.location.name}") as thread:
            jobs = thread.submit(self._run_jobs, stopping)
            try:
                while not jobs.done():
                    if stopping.is_set():
                        with suppress(Exception):
                            self._files.cancel()
                    else:
                        self._show_progress(connection)
                    wait([jobs], _WATCH_SECONDS)
            except BaseException:
                with suppress(Exception):
                    self._files.cancel()
                raise
        self._show_progress(connection, self._files.counts)
        if not stopping.is_set():
            self._check_published(jobs.exception())
        if self._files.stopped_by:
            raise StateError(
                f"{self.location.name} has stopped: {self._files.stopped_by}.",
                hint="Raise the limit and apply the application again, or remove the file.",
            )

    def _run_jobs(self, stopping: threading.Event) -> None:
        with self._login.connect("bulk") as connection:
            while not stopping.is_set() and self._files.receive(connection):
                self.meter.last_batch_at = self._clock()

    def _show_progress(self, connection: Connection, counts: Mapping[str, int] | None = None) -> None:
        self._last_progress = self._meter.read(connection, time.monotonic(), counts)
        self.watcher(self._last_progress)
        self._store_progress(connection)

    def _publish(self) -> float:
        """Run one job. Return the seconds until the next check for files."""
        try:
            if self._has_to_wait() or not self._files.receive(self._jobs_connection.get()):
                self._failure = None
                return _CHECK_SECONDS
        except Exception as error:
            self._jobs_connection.close()
            self._failure = format_reason(error)
            if isinstance(error, PostroomError):
                raise
            self._failure = f"a job failed: {self._failure}"
            raise Unavailable("A job failed.", why=format_reason(error)) from error
        self._failure = None
        self._file_at = time.monotonic()
        self.meter.last_batch_at = self._clock()
        return 0.0
