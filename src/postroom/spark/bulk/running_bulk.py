"""A receive location over files that Spark's own reader reads, at work: one thread claims, another runs jobs."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.background_loop import BackgroundLoop
from postroom.backoff import Backoff
from postroom.clock import Clock, system_clock
from postroom.errors import PostroomError, Unavailable
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import LazyConnection
from postroom.messagebox.running_locations import LocationProgress
from postroom.spark.bulk.files import BulkFiles
from postroom.spark.bulk.progress import BulkMeter, BulkProgress
from postroom.spark.intake.taking_in import is_drained
from postroom.spark.login import Login
from postroom.spark.reasons import reason_of
from postroom.spark.receive.running_location import RunningLocation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_PROGRESS_SECONDS, _TELL_SECONDS = 2.0, 10.0
_BACKOFF = Backoff(first=0.5, longest=30.0)
_DRAIN_SECONDS = 30.0


class RunningBulk(RunningLocation):
    """Serves a location between ``start`` and ``stop``, like any other; without a streaming query, so that it costs
    nothing while nothing comes."""

    def __init__(
        self,
        session: SparkSession,
        location: ReceiveLocation,
        *,
        login: Login,
        home: Path,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(session, location, login=login, home=home, clock=clock)
        self._answered = True  # by nobody: there is no query that would have to
        self._files = BulkFiles(session, location, login=login, home=home)
        self.counts = self._files.counts
        self._jobs = BackgroundLoop(f"jobs of {location.name}", self._publish, backoff=_BACKOFF)
        self._jobs_connection = LazyConnection(partial(login.connect, "bulk"))
        self._meter = BulkMeter(location.name, location.location_id)
        self._seen: BulkProgress | None = None
        self._look_at = self._tell_at = 0.0
        self._file_at = time.monotonic()

    def start(self) -> None:
        super().start()
        self._jobs.start()
        _log.info("%s: receiving", self.location.name)

    def check(self, *, may_start: bool = True) -> None:
        """Tells how far it has come. A location that has stopped claims nothing more."""
        if self._files.stopped_by and not self._intake_loop.stopping:
            self._stop_intake()
        now = time.monotonic()
        if self._files.is_busy and now >= self._look_at:
            self._look_at = now + _PROGRESS_SECONDS
            with suppress(PostroomError), self._login.connect("progress") as connection:
                self._seen = self._meter.look(connection, now)
                if now >= self._tell_at:
                    self._tell_at = now + _TELL_SECONDS
                    _log.info("%s", self._seen)

    def stop(self, *, drain: bool = False) -> None:
        """Claims nothing more and ends the job; with ``drain``, after what is claimed has been published, unless that
        takes too long: what is not published is read by the next process from where this one was."""
        self._stop_intake()
        if drain:
            self._wait_until_published()
        self._jobs.stop()
        while not self._jobs.join(0.0):
            # Again and again: the job may be about to begin.
            with suppress(Exception):  # Spark may be gone, and the job with it
                self._files.cancel()
            self._jobs.join(0.5)
        self._jobs_connection.close()

    def _wait_until_published(self) -> None:
        deadline = time.monotonic() + _DRAIN_SECONDS
        with suppress(PostroomError), self._login.connect("drain") as connection:
            while time.monotonic() < deadline and not self._files.stopped_by:
                if is_drained(connection, self.location) or self._hurrying.wait(0.05):
                    return

    def _progress(self) -> LocationProgress:
        """In bytes, of which the splits that are done count. What the jobs have counted at their end is certain; what
        is seen of one that runs is more than that."""
        known = replace(super()._progress(), remaining_unit="bytes", remaining=0)
        seen = self._seen
        if seen is None or not self._files.is_busy:
            return known
        return replace(known, rows=max(known.rows, seen.rows), rate=round(seen.rate), remaining=seen.bytes_left)

    def _has_to_wait(self) -> bool:
        """While another process has the location, and between two files while too much waits in the MessageBox."""
        throttle = self.throttle
        throttled = throttle is not None and time.monotonic() < self._file_at + throttle.delay
        return throttled or not self._active.is_set()

    # -- the jobs ----------------------------------------------------------------------------------------------

    def _publish(self) -> float:
        """Receive one file. Return the seconds until the next one is looked for."""
        try:
            if self._has_to_wait() or not self._files.receive(self._jobs_connection.get()):
                self._failure = None
                return _LOOK_SECONDS
        except Exception as error:
            self._jobs_connection.close()
            self._failure = reason_of(error)
            if isinstance(error, PostroomError):
                raise
            self._failure = f"a job failed: {self._failure}"
            raise Unavailable("A job failed.", why=reason_of(error)) from error
        self._failure = None
        self._file_at = time.monotonic()
        self._last_batch_at = self._clock()
        return 0.0
