"""A running receive location over bulk files: one background loop claims files, another runs jobs of Spark."""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.clock import Clock, system_clock
from postroom.errors import PostroomError, StateError, Unavailable
from postroom.messagebox.connection import Connection, LazyConnection, Login
from postroom.messagebox.intake.location_progress import LocationProgress
from postroom.ports.receive_locations import ReceiveLocation
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.spark.bulk.bulk_files import BulkFiles
from postroom.spark.bulk.progress import BulkMeter, BulkProgress
from postroom.spark.error_reasons import format_reason
from postroom.spark.receive.running_location import RunningLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.2
_PROGRESS_SECONDS, _LOG_SECONDS = 0.5, 10.0
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
        self._progress_connection = LazyConnection(partial(login.connect, "progress"))
        self.last_progress: BulkProgress | None = None
        self._progress_due_at = 0.0
        self._log_due_at = 0.0
        self._read_counts: Counter[str] = Counter()
        self._file_at = time.monotonic()

    def start(self) -> None:
        super().start()
        self._jobs.start()
        _log.info("%s: receiving", self.location.name)

    def supervise(self, *, may_start: bool = True) -> None:
        """Read the progress. A location that has stopped because of bad rows claims no more files."""
        if self._files.stopped_by and not self._intake_loop.stopping:
            self._set_problem(
                StateError(
                    f"{self.location.name} has stopped: {self._files.stopped_by}.",
                    hint="Raise the limit and apply the application again, or remove the file.",
                )
            )
            self._stop_intake()
        self._read_progress()

    def _read_progress(self) -> None:
        """Read the progress while a job runs, and after it. Log it every ten seconds."""
        now, is_busy = time.monotonic(), self._files.is_busy
        if now < self._progress_due_at if is_busy else self._read_counts == self._files.counts:
            return
        self._progress_due_at = now + _PROGRESS_SECONDS
        counts = None if is_busy else Counter(self._files.counts)
        try:
            self.last_progress = self._meter.read(self._progress_connection.get(), now, counts)
        except PostroomError:
            self._progress_connection.close()
            return
        self._read_counts = counts or self._read_counts
        if now >= self._log_due_at:
            self._log_due_at = now + _LOG_SECONDS
            _log.info("%s", self.last_progress)

    def _stop_query(self) -> None:
        """Cancel the job. The next process continues where this one stopped."""
        self._jobs.stop()
        while not self._jobs.join(0.0):
            # Repeatedly: the job may be about to start.
            with suppress(Exception):  # Spark may have died
                self._files.cancel()
            self._jobs.join(0.5)
        self._jobs_connection.close()
        self._read_progress()
        self._progress_connection.close()

    def _is_publishing(self) -> bool:
        return not self._files.stopped_by and not (self._once and self.problem)

    def _has_received_all(self, connection: Connection) -> bool:
        """Return True after the last job, unless it has stopped the location. The tasks of a job publish or quarantine
        files before the job ends."""
        return super()._has_received_all(connection) and not self._files.is_busy and not self._files.stopped_by

    def get_progress(self) -> LocationProgress:
        """Return the progress in bytes of finished splits. A running job may have published more rows than the finished
        jobs have counted."""
        known = replace(super().get_progress(), remaining_unit="bytes", remaining=0)
        progress = self.last_progress
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

    def _publish(self) -> float:
        """Run one job. Return the seconds until the next check for files."""
        try:
            if self._has_to_wait() or not self._files.receive(self._jobs_connection.get()):
                self._failure = None
                return _CHECK_SECONDS
        except Exception as error:
            self._jobs_connection.close()
            self._failure = format_reason(error)
            self._set_problem(error)
            if isinstance(error, PostroomError):
                raise
            self._failure = f"a job failed: {self._failure}"
            raise Unavailable("A job failed.", why=format_reason(error)) from error
        self._failure = None
        self._file_at = time.monotonic()
        self.meter.last_batch_at = self._clock()
        return 0.0
