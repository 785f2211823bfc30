"""One receive location at work: a thread that takes in, and a streaming query that publishes, each restarted when it
fails."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from postroom.clock import Clock, system_clock
from postroom.errors import PostroomError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.messagebox.running_locations import LocationProgress, LocationReport, LocationState
from postroom.messagebox.throttling import Throttle
from postroom.spark.intake.taking_in import is_drained, is_row_stream, taking_in
from postroom.spark.login import Login
from postroom.spark.reasons import reason_of
from postroom.spark.receive.rate import Rate
from postroom.spark.receive.stream import TALLIED, TALLY, TRIGGER, in_words, start_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

_LOOK_EVERY = timedelta(milliseconds=100)
_SHORTEST_LOOK = 0.02
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_CLAIM_PAUSE = 0.5, 30.0, 5.0
_DRAIN_SECONDS = 30.0
_BATCH_SECONDS, _TALLY_SECONDS = 5.0, 20.0


class RunningLocation:
    """Serves a location between ``start`` and ``stop``. ``check`` is to be called every so often, by one thread."""

    def __init__(
        self,
        session: SparkSession,
        location: ReceiveLocation,
        *,
        login: Login,
        home: Path,
        clock: Clock = system_clock,
        trigger: str = TRIGGER,
    ) -> None:
        self.location = location
        #: What is TALLIED, since the start.
        self.counts: Counter[str] = Counter()
        #: Why and how receiving is slowed down; None while it is not.
        self.throttle: Throttle | None = None
        self._session = session
        self._login = login
        self._home = home
        self._clock = clock
        self._trigger = trigger
        self._stopping = threading.Event()
        self._hurrying = threading.Event()
        self._active = threading.Event()
        self._thread = threading.Thread(target=self._take_in, name=f"taking in for {location.name}", daemon=True)
        self._query: StreamingQuery | None = None
        self._answered = False
        self._counted = -1
        self._looked_at = ""
        self._start_at = 0.0
        self._pause = _FIRST_PAUSE
        self._claim_pause = _FIRST_PAUSE
        self._rate = Rate()
        self._failure: str | None = None
        self._claim_failure: str | None = None
        self._last_batch_at: datetime | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def is_starting(self) -> bool:
        """Whether it has a query that has not answered yet."""
        return self._query is not None and not self._answered

    def check(self, *, may_start: bool = True) -> None:
        """Starts the query if it may, starts it again after a failure, and counts what it has done."""
        self._count()
        if self._query is not None and not self._query.isActive:
            self._fail()
        if not self._active.is_set():
            self._stop_query()  # another process has the location now
        elif self._query is None and may_start and time.monotonic() >= self._start_at:
            self._answered = False
            self._counted = -1
            try:
                self._query = self._start_query()
            except Exception as error:
                # A source that is not there, a column that it does not have: a matter of this location alone.
                self._try_later(f"the stream cannot be started: {reason_of(error)}")

    def stop(self, *, drain: bool = False) -> None:
        """Takes in nothing more and ends the query; with ``drain``, after what was taken in has been published."""
        self._stopping.set()
        self._thread.join()
        if drain and self._query is not None:
            self._wait_until_published()
        self._stop_query()

    def hurry(self) -> None:
        """A ``stop`` that drains waits no longer. May be called by another thread."""
        self._hurrying.set()

    def _wait_until_published(self) -> None:
        deadline = time.monotonic() + _DRAIN_SECONDS
        with suppress(psycopg.Error, PostroomError), self._login.connect("drain") as connection:
            while time.monotonic() < deadline and self._query is not None and self._query.isActive:
                self._count()
                if is_drained(connection, self.location) or self._hurrying.wait(0.05):
                    return

    # -- the query ---------------------------------------------------------------------------------------------

    def _start_query(self) -> StreamingQuery:
        return start_stream(self._session, self.location, login=self._login, home=self._home, trigger=self._trigger)

    def _fail(self) -> None:
        assert self._query is not None
        error = self._query.exception()
        self._query = None
        self._try_later("the stream ended" if error is None else f"the stream failed: {reason_of(error)}")

    def _try_later(self, failure: str) -> None:
        self._failure = failure
        _log.warning("%s: %s", self.location.name, failure)
        self._start_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _stop_query(self) -> None:
        if self._query is None:
            return
        # A batch that is interrupted does no harm, but it would run again at the next start; and one that has published
        # all that was taken in has nothing left to do but to say how much that was.
        if not self._batch_has_ended(self._query, _BATCH_SECONDS) and self._has_published_all():
            self._batch_has_ended(self._query, _TALLY_SECONDS)
        self._query.stop()
        self._count()
        self._query = None

    def _batch_has_ended(self, query: StreamingQuery, seconds: float) -> bool:
        """Whether it does, within this time."""
        deadline = time.monotonic() + seconds
        while query.isActive and query.status["isTriggerActive"]:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def _has_published_all(self) -> bool:
        with suppress(psycopg.Error, PostroomError), self._login.connect("drain") as connection:
            return not is_row_stream(self.location) and is_drained(connection, self.location)
        return False

    def _count(self) -> None:
        if self._query is None:
            return
        # Asked four times a second: whether there is anything new costs less than everything that there is.
        latest = self._query.lastProgress
        # The first batch may be long, and its progress is told when it is over.
        if not self._answered and (latest is not None or self._query.status["isDataAvailable"]):
            self._answered = True
            _log.info("%s: receiving", self.location.name)
        if latest is None or latest.timestamp == self._looked_at:
            return
        self._looked_at = latest.timestamp
        self._failure = None
        for progress in self._query.recentProgress:
            if progress.batchId > self._counted and progress.observedMetrics:
                self._counted = progress.batchId
                tally = progress.observedMetrics[TALLY]
                done = {name: int(tally[name] or 0) for name in TALLIED}
                self.counts.update(done)
                self._pause = _FIRST_PAUSE
                self._failure = None
                if any(done.values()):
                    self._rate.add(done["published"])
                    self._last_batch_at = self._clock()
                    _log.info("%s: %s", self.location.name, in_words(done))

    # -- taking in ---------------------------------------------------------------------------------------------

    def _take_in(self) -> None:
        report = LocationReport()
        while not self._stopping.is_set():
            try:
                with self._login.connect("claims") as connection:
                    try:
                        self._take_in_over(connection, report)
                    except psycopg.Error:
                        raise  # there is nobody to tell
                    except Exception as error:
                        self._claim_failure = f"nothing can be taken in: {reason_of(error)}"
                        report.tell(connection, self._progress())
                        raise
            except Exception as error:
                # Whatever it is, the next location must not suffer, and this one is tried again.
                expected = isinstance(error, psycopg.OperationalError | PostroomError | OSError)
                text = str(error).strip().replace("\n", " ")
                _log.warning("%s: %s", self.location.name, text, exc_info=None if expected else error)
                self._stopping.wait(self._claim_pause)
                self._claim_pause = min(2 * self._claim_pause, _LONGEST_CLAIM_PAUSE)

    def _take_in_over(self, connection: Connection, report: LocationReport) -> None:
        work = taking_in(connection, self.location, self._home, self._clock)
        while not self._stopping.is_set():
            scan = work.scan()
            self._claim_pause = _FIRST_PAUSE
            self._claim_failure = None
            (self._active.set if scan.active else self._active.clear)()
            if scan.active:
                report.tell(connection, self._progress())
            wait = work.next_look(_LOOK_EVERY) if scan.active else 10 * _LOOK_EVERY
            self._stopping.wait(max(wait.total_seconds(), _SHORTEST_LOOK))
        report.end(connection, self.location.location_id)
        work.release()

    def _progress(self) -> LocationProgress:
        state, reason = LocationState.RECEIVING if self._answered else LocationState.STARTING, None
        throttle = self.throttle
        if throttle is not None:
            state = LocationState.THROTTLED
            reason = f"{throttle.reason}; batches are small, and {throttle.delay:.1f} s apart"
        failure = self._failure or self._claim_failure
        if failure is not None:
            state, reason = LocationState.FAILING, failure
        return LocationProgress(
            location_id=self.location.location_id,
            state=state,
            reason=reason,
            rows=self.counts["published"],
            suspended=self.counts["suspended"],
            rate=self._rate.per_second(),
            last_batch_at=self._last_batch_at,
        )
