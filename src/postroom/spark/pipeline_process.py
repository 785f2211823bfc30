"""The process behind ``postroom pipeline run``: the enabled file receive locations of one host, and its sinks, on one
session."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from postroom.clock import system_clock
from postroom.errors import PostroomError, StateError, Unavailable
from postroom.messagebox.configuration import Host, ReceiveLocation, host_named, receive_locations
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.permission import refusals_told, require_host
from postroom.messagebox.throttling import Throttle, read_throttle
from postroom.spark.bulk.files import BulkFiles
from postroom.spark.bulk.once import Watcher, receive_once
from postroom.spark.bulk.row_stream import start_row_stream
from postroom.spark.bulk.running_bulk import RunningBulk
from postroom.spark.bulk.running_row_stream import RunningRowStream
from postroom.spark.intake import claim as claims
from postroom.spark.intake.rounds import in_rounds
from postroom.spark.intake.taking_in import is_row_stream, taking_in, to_serve
from postroom.spark.login import Login
from postroom.spark.reasons import reason_of
from postroom.spark.receive.running_location import RunningLocation
from postroom.spark.receive.stream import TALLIED, TALLY, in_words, start_stream
from postroom.spark.session import has_died, open_session
from postroom.spark.settings import for_bulk, is_here
from postroom.spark.sinks.running_sinks import Sinks
from postroom.stop_signals import stopped_by_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.25
_CONFIGURATION_SECONDS = 2.0
_DEATH_SECONDS = 5.0
#: So many names of files that were put aside.
_TOLD = 5
_STARTING_AT_ONCE = max(2, (os.cpu_count() or 1) // 2)

#: What runs a receive location, by the kind of its adapter.
_SERVED: dict[str, type[RunningLocation]] = {
    "file": RunningLocation,
    "http_receive": RunningLocation,
    "spark_reader": RunningBulk,  # or RunningRowStream
}


def run_pipeline(
    url: str,
    host_name: str,
    home: Path,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    once: bool = False,
    as_role: bool = False,
    stop: threading.Event | None = None,
    watcher: Watcher | None = None,
) -> Counter[str]:
    """Serves the receive locations and the sinks of a host until SIGTERM or SIGINT comes, or ``stop`` is set. With
    ``once``, takes in what is there, writes what waits, and returns. The answer counts what is TALLIED and written.

    ``watcher`` is told of the progress of bulk files, with ``once``; without one the log tells.
    ``as_role`` logs in as the host's own role, where the server trusts that; otherwise the URL says who logs in.
    Raises NotFound, NotAllowed or Unavailable if it cannot start, and Unavailable if Spark dies.
    """
    stopping = stop or threading.Event()
    with refusals_told(), connect(url, application_name="postroom pipeline") as connection:
        host = host_named(connection, host_name)
    login = Login(url=url, user=host.role_name if as_role else None)
    with login.connect("pipeline") as connection:
        require_host(connection, host)
        locations = receive_locations(connection, host_id=host.host_id)
    if any(location.enabled and location.adapter["kind"] == "spark_reader" for location in locations):
        settings = for_bulk(settings)
    try:
        return _run_on_spark(
            host, login, home, master=master, settings=settings, once=once, stop=stopping, watcher=watcher
        )
    except PostroomError:
        raise
    except Exception as error:
        if not stopping.is_set():
            raise
        # Spark was told to end while it started, or in the middle of an answer.
        if once:
            raise _ended_early() from error
        _log.warning("ended while Spark was at work: %s", reason_of(error))
        return Counter()


def _run_on_spark(
    host: Host,
    login: Login,
    home: Path,
    *,
    master: str | None,
    settings: Mapping[str, str] | None,
    once: bool,
    stop: threading.Event,
    watcher: Watcher | None,
) -> Counter[str]:
    name = f"pipeline-{host.name.lower()}"
    # Twice, because the session puts a handler of its own in the place of ours.
    with (
        stopped_by_signals(stop),
        open_session(home, master=master, name=name, settings=settings) as session,
        stopped_by_signals(stop),
    ):
        where = session.sparkContext.master or ""
        if login.is_of_this_machine and not is_here(where):
            text = "Spark runs on %s, and only tasks on this machine can reach the MessageBox: its address is local"
            _log.warning(text, where)
        pipeline = PipelineProcess(session, host, login=login, home=home)
        return pipeline.run_once(stop, watcher) if once else pipeline.run(stop)


class PipelineProcess:
    """The receive locations and sinks of a host on a session that the caller owns."""

    def __init__(self, session: SparkSession, host: Host, *, login: Login, home: Path) -> None:
        self._session = session
        self._host = host
        self._login = login
        self._home = home
        self._running: dict[uuid.UUID, RunningLocation] = {}
        self._ending: dict[uuid.UUID, tuple[RunningLocation, threading.Thread]] = {}
        self._sinks = Sinks(session, host, login=login, home=home)
        self._counts: Counter[str] = Counter()
        self._connection: Connection | None = None
        self._throttle: Throttle | None = None
        self._read_at = 0.0

    def run(self, stopping: threading.Event) -> Counter[str]:
        """Until told to stop."""
        try:
            while not stopping.is_set() and not has_died(self._session, within=0):
                self._see_off()
                self._follow_configuration()
                self._check_locations()
                self._check_sinks()
                stopping.wait(_CHECK_SECONDS)
        except Exception as error:
            if not has_died(self._session, within=_DEATH_SECONDS):
                raise
            _log.warning("%s", error)
        finally:
            self._stop_all()
        if not stopping.is_set():
            raise Unavailable("Spark has died.", hint=f"See the logs in {self._home / '.postroom' / 'logs'}.")
        return self._all_counts()

    def run_once(self, stopping: threading.Event, watcher: Watcher | None = None) -> Counter[str]:
        """What is there now, location by location, and sink by sink. One that cannot go on does not hold up the others:
        what was wrong is raised when all have had their turn."""
        problems: list[PostroomError] = []
        with self._login.connect("pipeline") as connection:
            for location in self._served(connection):
                if not stopping.is_set():
                    problems += self._once(location, stopping, watcher)
            problems += self._sinks.drain_all(connection, stopping)
        if stopping.is_set():
            problems.insert(0, _ended_early())
        if problems:
            raise _together(problems)
        return self._all_counts()

    def _all_counts(self) -> Counter[str]:
        # Counters that are added lose what is zero.
        counts = Counter(self._counts)
        counts.update(self._sinks.counts)
        return counts

    # -- until told to stop --------------------------------------------------------------------------------------

    def _follow_configuration(self) -> None:
        """Starts, stops and replaces locations as the configuration says; ORS-07: a disabled one picks up nothing."""
        if time.monotonic() < self._read_at:
            return
        self._read_at = time.monotonic() + _CONFIGURATION_SECONDS
        try:
            if self._connection is None:
                self._connection = self._login.connect("pipeline")
            wanted = {location.location_id: location for location in self._served(self._connection)}
            throttle = read_throttle(self._connection, self._host.host_id)
        except (psycopg.OperationalError, Unavailable) as error:
            _log.warning("the configuration cannot be read: %s", str(error).strip().replace("\n", " "))
            self._connection = None
            return
        self._tell_of(throttle)
        for location_id, running in list(self._running.items()):
            if wanted.get(location_id) != running.location:
                self._stop(location_id, drain=True)
        for location_id, location in wanted.items():
            if location_id not in self._running and location_id not in self._ending:
                served_by = _served_by(location)
                self._running[location_id] = served_by(self._session, location, login=self._login, home=self._home)
                self._running[location_id].start()

    def _check_locations(self) -> None:
        """Some streams start at a time. Each starts a Python of its own, which Spark gives ten seconds to answer: if
        all started together, none would make it on a busy machine, again and again."""
        for running in self._running.values():
            starting = sum(one.is_starting for one in self._running.values())
            running.check(may_start=starting < _STARTING_AT_ONCE)

    def _check_sinks(self) -> None:
        if self._connection is None:
            return
        try:
            self._sinks.check(self._connection)
        except psycopg.OperationalError as error:
            _log.warning("the sinks cannot be looked at: %s", str(error).strip().replace("\n", " "))
            self._connection = None

    def _tell_of(self, throttle: Throttle | None) -> None:
        """The sources slow themselves down; here it is told, in the log when it begins and ends."""
        if throttle is not None and self._throttle is None:
            _log.warning("receiving is slowed down: %s", throttle.reason)
        elif throttle is None and self._throttle is not None:
            _log.info("receiving is not slowed down any more")
        self._throttle = throttle
        for running in self._running.values():
            running.throttle = throttle

    def _served(self, connection: Connection) -> list[ReceiveLocation]:
        now = system_clock()
        known = receive_locations(connection, host_id=self._host.host_id)
        served = (to_serve(connection, one, now) for one in known if one.adapter["kind"] in _SERVED)
        return [location for location in served if location is not None]

    def _stop(self, location_id: uuid.UUID, *, drain: bool) -> None:
        """In a thread of its own, because others need not wait until what was taken in is published."""
        running = self._running.pop(location_id)
        name = f"end of {running.location.name}"
        thread = threading.Thread(target=_stopped, args=(running,), kwargs={"drain": drain}, name=name, daemon=True)
        self._ending[location_id] = (running, thread)
        thread.start()

    def _see_off(self) -> None:
        """Those that have come to their end. One that was changed begins anew at once."""
        for location_id, (running, thread) in list(self._ending.items()):
            if not thread.is_alive():
                del self._ending[location_id]
                self._counts.update(running.counts)
                self._read_at = 0.0
                _log.info("%s: no longer receiving", running.location.name)

    def _stop_all(self) -> None:
        for location_id in list(self._running):
            self._stop(location_id, drain=False)
        for running, thread in self._ending.values():
            running.hurry()
            thread.join()
        self._see_off()
        self._sinks.stop()
        if self._connection is not None:
            self._connection.close()

    # -- once ----------------------------------------------------------------------------------------------------

    def _once(
        self, location: ReceiveLocation, stopping: threading.Event, watcher: Watcher | None
    ) -> list[PostroomError]:
        before = Counter(self._counts)
        problems: list[PostroomError] = []
        try:
            self._run_once(location, stopping, watcher)
            problems = self._put_aside(location)
        except PostroomError as error:
            problems = [error]
        except psycopg.OperationalError:
            raise  # the MessageBox is away, for all of them
        except Exception as error:
            if has_died(self._session, within=_DEATH_SECONDS):
                raise
            problems = [Unavailable(f"{location.name} could not be received.", why=reason_of(error))]
        for problem in problems:
            _log.warning("%s", str(problem).replace("\n", " "))
        _log.info("%s: %s", location.name, in_words(self._counts - before))
        return problems

    def _put_aside(self, location: ReceiveLocation) -> list[PostroomError]:
        with self._login.connect("claims") as connection:
            left = claims.put_aside(connection, location.location_id)
        if not left:
            return []
        names = ", ".join(name for name, _ in left[:_TOLD]) + (", …" if len(left) > _TOLD else "")
        return [
            StateError(
                f"{location.name}: {len(left)} put aside: {names}.",
                why=f"{left[0][0]} {left[0][1]}",
                hint="See postroom location list. The next run tries them again.",
            )
        ]

    def _run_once(self, location: ReceiveLocation, stopping: threading.Event, watcher: Watcher | None) -> None:
        with self._login.connect("claims") as connection:
            work = taking_in(connection, location, self._home, system_clock)
            settle = timedelta(seconds=float(location.adapter.get("settle", 0)))
            publish = partial(self._publish_once, location, stopping, watcher)
            if not in_rounds(work, publish, settle=settle, stopping=stopping):
                _log.warning("%s is served by another process", location.name)
            work.release()

    def _publish_once(self, location: ReceiveLocation, stopping: threading.Event, watcher: Watcher | None) -> None:
        if location.adapter["kind"] == "spark_reader" and not is_row_stream(location):
            receiving = BulkFiles(self._session, location, login=self._login, home=self._home, paced=False)
            try:
                receive_once(receiving, login=self._login, stopping=stopping, watcher=watcher)
            finally:
                self._counts.update(receiving.counts)
            return
        start = start_row_stream if is_row_stream(location) else start_stream
        query = start(self._session, location, login=self._login, home=self._home, once=True)
        while not query.awaitTermination(1):
            if stopping.is_set():
                query.stop()
        error = query.exception()
        if error is not None:
            raise Unavailable(f"{location.name} could not be received.", why=reason_of(error)) from error
        for progress in query.recentProgress:
            if progress.observedMetrics:
                tally = progress.observedMetrics[TALLY]
                self._counts.update({name: int(tally[name] or 0) for name in TALLIED})


def _ended_early() -> PostroomError:
    return Unavailable(
        "It was ended before its work was done.", hint="Run it again; it goes on where it was, and nothing comes twice."
    )


def _served_by(location: ReceiveLocation) -> type[RunningLocation]:
    try:
        return RunningRowStream if is_row_stream(location) else _SERVED[location.adapter["kind"]]
    except PostroomError:
        # Its adapter cannot be loaded. It fails when it takes in, and tells of it there.
        return RunningLocation


def _stopped(running: RunningLocation, *, drain: bool) -> None:
    try:
        running.stop(drain=drain)
    except Exception as error:
        # A query of a JVM that has died; what counts is why it died.
        _log.warning("%s: %s", running.location.name, reason_of(error))


def _together(problems: Sequence[PostroomError]) -> PostroomError:
    """One error for all; its kind is that of the first."""
    first = problems[0]
    if len(problems) == 1:
        return first
    why = " ".join(f"{one.what} {one.why}".strip() for one in problems[1:])
    return type(first)(
        f"{len(problems)} things went wrong. {first.what}", why=f"{first.why} {why}".strip(), hint=first.hint
    )
