"""One receive location at work: a thread that takes in, and a streaming query that publishes, each restarted when it
fails."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.background_loop import BackgroundLoop
from postroom.backoff import Backoff
from postroom.clock import Clock, system_clock
from postroom.errors import MessageBoxUnavailable, PostroomError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection, LazyConnection
from postroom.messagebox.running_locations import LocationProgress, LocationReport, LocationState
from postroom.messagebox.throttling import Throttle
from postroom.spark.intake.taking_in import TakingIn, is_drained, taking_in
from postroom.spark.login import Login
from postroom.spark.reasons import reason_of
from postroom.spark.receive.stream import TRIGGER, start_stream
from postroom.spark.receive.tally import TALLIED, TALLY, Rate, in_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

_LOOK_EVERY = timedelta(milliseconds=100)
_SHORTEST_LOOK = 0.02
#: Between two looks whether another process has released the location.
_STANDBY_SECONDS = 1.0
_QUERY_BACKOFF, _INTAKE_BACKOFF = Backoff(first=0.5, longest=30.0), Backoff(first=0.5, longest=5.0)
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
        self._hurrying = threading.Event()
        self._active = threading.Event()
        self._intake_loop = BackgroundLoop(f"intake of {location.name}", self._take_in, backoff=_INTAKE_BACKOFF)
        self._intake_connection = LazyConnection(partial(login.connect, "claims"))
        self._intake: TakingIn | None = None
        self._report = LocationReport()
        self._query: StreamingQuery | None = None
        self._answered = False
        self._counted = -1
        self._looked_at = ""
        self._start_at = 0.0
        self._query_failures = 0
        self._rate = Rate()
        self._failure: str | None = None
        self._claim_failure: str | None = None
        self._last_batch_at: datetime | None = None

    def start(self) -> None:
        self._intake_loop.start()

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
        self._stop_intake()
        if drain and self._query is not None:
            self._wait_until_published()
        self._stop_query()

    def hurry(self) -> None:
        """A ``stop`` that drains waits no longer. May be called by another thread."""
        self._hurrying.set()

    def _wait_until_published(self) -> None:
        deadline = time.monotonic() + _DRAIN_SECONDS
        with suppress(PostroomError), self._login.connect("drain") as connection:
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
        self._query_failures += 1
        self._start_at = time.monotonic() + _QUERY_BACKOFF.delay(self._query_failures)

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
        with suppress(PostroomError), self._login.connect("drain") as connection:
            return not self.location.adapter.is_row_stream and is_drained(connection, self.location)
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
                self._query_failures = 0
                self._failure = None
                if any(done.values()):
                    self._rate.add(done["published"])
                    self._last_batch_at = self._clock()
                    _log.info("%s: %s", self.location.name, in_words(done))

    # -- taking in ---------------------------------------------------------------------------------------------

    def _take_in(self) -> float:
        """Scan once. Return the seconds until the next scan."""
        try:
            return self._scan(self._intake_connection.get())
        except Exception:
            self._intake = None
            self._intake_connection.close()
            raise

    def _scan(self, connection: Connection) -> float:
        try:
            if self._intake is None:
                self._intake = taking_in(connection, self.location, self._home, self._clock)
            scan = self._intake.scan()
        except MessageBoxUnavailable:
            raise  # the failure cannot be reported over this connection
        except Exception as error:
            self._claim_failure = f"nothing can be taken in: {reason_of(error)}"
            self._report.tell(connection, self._progress())
            raise
        self._claim_failure = None
        if not scan.active:
            self._active.clear()
            return _STANDBY_SECONDS
        self._active.set()
        self._report.tell(connection, self._progress())
        return max(self._intake.next_look(_LOOK_EVERY).total_seconds(), _SHORTEST_LOOK)

    def _stop_intake(self) -> None:
        self._intake_loop.stop()
        self._intake_loop.join()
        if self._intake is not None:
            with suppress(PostroomError):
                self._report.end(self._intake_connection.get(), self.location.location_id)
                self._intake.release()
        self._intake = None
        self._intake_connection.close()

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
