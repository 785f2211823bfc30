"""Running locations do not affect each other: neither by failures, nor by being slow to stop."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from postroom.adapters import Committed, Incoming, SparkSink
from postroom.errors import MessageBoxUnavailable, StateError, Unavailable
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.messagebox.intake.location_lock import LocationLock
from postroom.monitoring.metrics import format_metrics
from postroom.operations.ports.receive_locations import LocationListing, list_locations
from postroom.operations.ports.sinks import list_sinks
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.location_runner import Running
from postroom.receiving.numbered_receive_adapter import NumberedReceiveAdapter, Scan
from postroom.receiving.task import MILLISECONDS
from postroom.spark import pipeline_process
from postroom.spark.bulk.bulk_files import BulkFiles
from postroom.spark.bulk.progress import BulkMeter, BulkProgress
from postroom.spark.bulk.running_bulk_location import RunningBulkLocation
from postroom.spark.pipeline_process import PipelineProcess, collect_pipeline_metrics
from postroom.spark.receive import running_location
from postroom.spark.receive.running_location import RunningLocation
from postroom.spark.receive.task import TALLY_COLUMNS, TALLY_METRIC
from tests.support.box import Box
from tests.support.bulk_location import add_bulk_location
from tests.support.file_location import add_file_location
from tests.support.sinks import add_sink
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

NO_SESSION: Any = None


@pytest.fixture
def login(box: Box) -> Login:
    return Login(url=box.url, user=box.host().role_name)


class LocationWithoutSource(RunningLocation):
    """A location whose stream cannot be started."""

    starts = 0

    def _start_query(self) -> StreamingQuery:
        self.starts += 1
        raise ValueError("Failed to find the data source: kafka.")


def state_of(box: Box, location: ReceiveLocation) -> tuple[str, str | None] | None:
    found = [one for one in box.running_locations() if one.location_id == location.location_id]
    return (found[0].state, found[0].reason) if found else None


def test_a_stream_that_cannot_be_started_is_reported_and_retried(box: Box, login: Login, tmp_path: Path) -> None:
    location = add_file_location(box, tmp_path / "in")
    running = LocationWithoutSource(NO_SESSION, location, login=login, home=tmp_path)
    running.start()
    try:

        def tries() -> int:
            running.supervise()
            return running.starts

        wait_until(lambda: tries() >= 2, what="a second try")
        reason = "the stream cannot be started: Failed to find the data source: kafka."
        wait_until(lambda: state_of(box, location) == ("failing", reason), what="the report")
        assert not running.is_starting
        assert running.starts < 4, "it is retried with backoff"
    finally:
        running.stop()


def test_a_folder_that_cannot_be_created_is_reported(box: Box, login: Login, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"no folder")
    location = add_file_location(box, tmp_path / "in" / "there")
    running = RunningLocation(NO_SESSION, location, login=login, home=tmp_path)
    running.start()
    try:

        def is_reported() -> bool:
            state, reason = state_of(box, location) or ("", "")
            return state == "failing" and "the intake failed" in (reason or "") and "Not a directory" in (reason or "")

        wait_until(is_reported, what="the report")
    finally:
        running.stop()


def test_a_location_does_not_create_its_folder_again_while_it_runs(
    box: Box, login: Login, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "postroom.processes")  # an error that comes again is not a warning
    location = add_file_location(box, tmp_path / "in")
    running = RunningLocation(NO_SESSION, location, login=login, home=tmp_path)
    running.start()
    try:
        wait_until(lambda: state_of(box, location) == ("starting", None), what="a scan")
        away = (tmp_path / "in").rename(tmp_path / "away")
        wait_until(lambda: "is gone" in str(state_of(box, location)), what="the report")
        wait_until(lambda: caplog.text.count("is gone") > 1, what="another try")
        assert not (tmp_path / "in").exists()
        away.rename(tmp_path / "in")
        wait_until(lambda: state_of(box, location) == ("starting", None), what="a location that continues")
    finally:
        running.stop()


def test_an_unexpected_error_of_the_intake_is_reported_and_retried(
    box: Box, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    location = add_file_location(box, tmp_path / "in")
    running = RunningLocation(NO_SESSION, location, login=login, home=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("postroom.spark.receive.running_location.FileClaimer", raise_error)
        running.start()
        reported = ("failing", "the intake failed: division by zero")
        wait_until(lambda: state_of(box, location) == reported, what="the report")
    try:
        wait_until(lambda: state_of(box, location) == ("starting", None), what="a location without failure")
    finally:
        running.stop()


def test_an_adapter_that_cannot_be_loaded_is_reported(box: Box, login: Login, tmp_path: Path) -> None:
    location = add_file_location(box, tmp_path / "in")
    box.merge_locations(adapter={"settle": "whenever"})
    process = PipelineProcess(NO_SESSION, box.host(), login=login, home=tmp_path)
    process._apply_configuration()
    try:
        process._check_locations()
        wait_until(lambda: (state_of(box, location) or ("",))[0] == "failing", what="the report")
    finally:
        process._stop_all()


class Finishing:
    """A query whose batch ends after its status was read several times. Its progress is known only then."""

    isActive = True  # noqa: N815
    done = SimpleNamespace(
        timestamp="now",
        batchId=0,
        observedMetrics={TALLY_METRIC: {name: int(name == "files") for name in TALLY_COLUMNS}},
    )

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self.stopped = False

    @property
    def status(self) -> dict[str, bool]:
        self._looks -= 1
        return {"isDataAvailable": True, "isTriggerActive": self._looks > 0}

    @property
    def lastProgress(self) -> SimpleNamespace | None:  # noqa: N802
        return self.done if self._looks <= 0 else None

    @property
    def recentProgress(self) -> list[SimpleNamespace]:  # noqa: N802
        return [self.done] if self._looks <= 0 else []

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(("claimed", "counted"), [(False, 1), (True, 0)])
def test_a_batch_that_has_published_everything_is_counted_even_if_it_ends_late(
    box: Box, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed: bool, counted: int
) -> None:
    monkeypatch.setattr(running_location, "_BATCH_SECONDS", 0.0)
    location = add_file_location(box, tmp_path / "in")
    running = RunningLocation(NO_SESSION, location, login=login, home=tmp_path)
    if claimed:  # the batch has not ended, and is not waited for
        box.add_file_claim(location.location_id, number=1)
    query: Any = Finishing(looks=5)
    running._query = query
    running._stop_query()
    assert query.stopped
    assert running.meter.counts["files"] == counted


def test_the_inbound_latency_is_a_metric_of_the_pipeline_process(box: Box, login: Login, tmp_path: Path) -> None:
    running = RunningLocation(NO_SESSION, add_file_location(box, tmp_path / "in"), login=login, home=tmp_path)
    query: Any = Finishing(looks=0)
    query.done = SimpleNamespace(
        timestamp="now",
        batchId=0,
        observedMetrics={TALLY_METRIC: {**dict.fromkeys(TALLY_COLUMNS, 0), "files": 2, MILLISECONDS: 1_500}},
    )
    running._query = query
    running._stop_query()
    sinks: Any = SimpleNamespace(batches=Counter(), written=Counter())
    metrics, _ = format_metrics(collect_pipeline_metrics("Default", [running], sinks), "")
    assert b'postroom_receive_seconds_count{host="Default",location="drop"} 2.0' in metrics
    assert b'postroom_receive_seconds_sum{host="Default",location="drop"} 1.5' in metrics


class SlowLocation(Running):
    """A location that is slow to stop."""

    made: list[SlowLocation]

    def __init__(self, _: object, location: ReceiveLocation, **__: object) -> None:
        self.location = location
        self.meter = SimpleNamespace(counts=Counter(published=1))
        self.is_starting = False
        self.takes_input = True
        self.throttle = None
        self.checks = 0
        self.may_end = threading.Event()
        self.drained: list[bool] = []
        self.made.append(self)

    def start(self) -> None: ...

    def supervise(self, *, may_start: bool = True) -> None:
        self.checks += 1

    def stop(self) -> None:
        self.drained.append(time.monotonic() < self.finish_by)
        wait_until(lambda: self.may_end.is_set() or time.monotonic() >= self.finish_by, what="the end")


@pytest.fixture
def slow_locations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SlowLocation]]:
    SlowLocation.made = []
    monkeypatch.setattr(pipeline_process, "RunningLocation", SlowLocation)
    monkeypatch.setattr(pipeline_process, "_SELECT_SECONDS", 0.0)
    yield SlowLocation.made
    for location in SlowLocation.made:
        location.may_end.set()


def read_taken(box: Box) -> int:
    """Return the version of the configuration that the pipeline process has taken."""
    [taken] = [one.routing_version for one in box.host_instances() if one.kind == "pipeline"]
    return taken


def change_configuration(box: Box, process: PipelineProcess, name: str | None = None, **columns: Any) -> None:
    """Change what is stored of locations, and wait until the process is notified. It has not read the change yet."""
    with box.connection.transaction():
        box.connection.execute("SELECT change_routing()")
        box.set_locations(name, **columns)

    def is_notified() -> bool:
        process._listener.get()
        return process._has_changed

    wait_until(is_notified, what="the notification")


def test_other_locations_continue_while_a_changed_location_stops(
    box: Box, login: Login, tmp_path: Path, slow_locations: list[SlowLocation]
) -> None:
    for name in ("one", "two"):
        add_file_location(box, tmp_path / name, name=name)
    process = PipelineProcess(NO_SESSION, box.host(), login=login, home=tmp_path)
    process._apply_configuration()
    one, two = slow_locations
    change_configuration(box, process, "one", maps=[{}])

    def turn() -> None:
        process._apply_configuration()
        process._check_locations()

    turn()  # would not return if it waited for the location
    turn()
    assert one.drained == [True]
    assert (one.checks, two.checks) == (0, 2)
    assert len(slow_locations) == 2, "a location is not restarted before it has stopped"

    one.may_end.set()

    def is_restarted() -> bool:
        turn()
        return len(slow_locations) == 3

    wait_until(is_restarted, what="the changed location")
    assert slow_locations[2].location.name == "one"
    process._stop_all()
    assert process._counts["published"] == 3


def test_a_change_is_taken_when_the_old_location_takes_no_more_input(
    box: Box, login: Login, tmp_path: Path, slow_locations: list[SlowLocation]
) -> None:
    """The old location still publishes what it has received."""
    for name in ("one", "two"):
        add_file_location(box, tmp_path / name, name=name)
    process = PipelineProcess(NO_SESSION, box.host(), login=login, home=tmp_path)
    process._apply_configuration()
    version = read_routing_version(box.connection)
    assert read_taken(box) == version
    change_configuration(box, process, "one", maps=[{}])
    process._apply_configuration()
    process._apply_configuration()
    assert read_taken(box) == version
    slow_locations[0].takes_input = False
    process._apply_configuration()
    assert read_taken(box) == version + 1
    assert len(slow_locations) == 2, "the location still drains"
    process._stop_all()
    assert box.count("host instances") == 0


def test_a_change_is_taken_after_its_notification(
    box: Box, login: Login, tmp_path: Path, slow_locations: list[SlowLocation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is read after a notification, and after the connection was lost."""
    monkeypatch.setattr(pipeline_process, "_SELECT_SECONDS", 3600.0)
    process = PipelineProcess(NO_SESSION, box.host(), login=login, home=tmp_path)
    process._apply_configuration()
    add_file_location(box, tmp_path / "one", name="one")

    def turn() -> int:
        process._apply_configuration()
        return len(slow_locations)

    assert turn() == 0, "no notification"
    box.connection.execute("SELECT change_routing()")
    wait_until(lambda: turn() == 1, what="the notification")
    add_file_location(box, tmp_path / "two", name="two")
    monkeypatch.setattr(pipeline_process, "_SELECT_SECONDS", 0.0)
    process._listener.get().close()
    wait_until(lambda: turn() == 2, what="the new connection")
    process._stop_all()


def test_the_end_of_the_process_does_not_wait_for_a_location_that_drains(
    box: Box, login: Login, tmp_path: Path, slow_locations: list[SlowLocation]
) -> None:
    add_file_location(box, tmp_path / "one", name="one")
    process = PipelineProcess(NO_SESSION, box.host(), login=login, home=tmp_path)
    process._apply_configuration()
    change_configuration(box, process, enabled=False)
    process._apply_configuration()
    process._stop_all()
    assert slow_locations[0].drained == [True]
    assert process._counts["published"] == 1


@pytest.fixture
def single_run(box: Box, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineProcess:
    """Return a single run without Spark."""
    monkeypatch.setattr(pipeline_process, "has_died", lambda *_, **__: False)
    return PipelineProcess(NO_SESSION, box.host(), login=login, home=tmp_path, once=True)


class EmptySource(NumberedReceiveAdapter):
    """A source that has nothing."""

    def scan(self) -> Scan:
        return Scan(active=True)

    def read(self, interchange_ids: Sequence[uuid.UUID]) -> Sequence[Incoming]:
        return ()

    def clean_up(self, committed: Sequence[Committed]) -> None:
        pass


def test_once_reports_quarantined_files(
    box: Box, tmp_path: Path, single_run: PipelineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = add_file_location(box, tmp_path / "in")
    monkeypatch.setattr(
        RunningLocation, "_make_adapter", lambda self, connection, **_: EmptySource(connection, self.location)
    )
    claim = FileClaim(interchange_id=uuid.uuid4(), name="a.json", path=tmp_path / "x~a.json", size=1, modified_ns=1)
    file_claims.insert_file_claims(
        box.connection, location.location_id, [(claim.interchange_id, claim.name, claim.path)]
    )
    file_claims.store_problem(
        box.connection, claim, FileClaimState.FAILED, file_claims.format_problem(claim, "It is broken.")
    )
    with pytest.raises(StateError) as reported:
        single_run.run(threading.Event())
    assert reported.value.what == "drop: 1 quarantined: a.json."
    assert reported.value.why.startswith("a.json could not be received: It is broken. It is kept as ")


def test_once_waits_for_the_job_that_has_quarantined_a_bulk_file(box: Box, login: Login, tmp_path: Path) -> None:
    location = add_bulk_location(box, tmp_path / "in")
    running = RunningBulkLocation(NO_SESSION, location, login=login, home=tmp_path, once=True)
    running._files.is_busy = True  # a task has quarantined the file, and the job has not ended
    running._run_intake()
    running._run_intake()
    assert not running.is_done
    running._files.stopped_by, running._files.is_busy = "bad.csv: 1 of 1 rows is bad", False
    running._run_intake()
    assert not running.is_done
    running.supervise()
    assert running.problem is not None
    assert running.problem.what == "bulk has stopped: bad.csv: 1 of 1 rows is bad."


def test_once_is_done_with_bulk_files_after_the_last_job(box: Box, login: Login, tmp_path: Path) -> None:
    location = add_bulk_location(box, tmp_path / "in")
    running = RunningBulkLocation(NO_SESSION, location, login=login, home=tmp_path, once=True)
    running._run_intake()
    running._run_intake()
    assert running.is_done
    running._stop_intake()


def test_a_run_that_is_stopped_early_raises(box: Box, tmp_path: Path, single_run: PipelineProcess) -> None:
    add_file_location(box, tmp_path / "in")
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(Unavailable, match="stopped before it was finished"):
        single_run.run(stopping)


def test_once_reports_a_location_that_another_process_serves(
    box: Box, login: Login, tmp_path: Path, single_run: PipelineProcess
) -> None:
    location = add_file_location(box, tmp_path / "in")
    with login.connect("other") as connection:
        assert LocationLock(connection, location.location_id).acquire()
        with pytest.raises(StateError, match="drop is served by another process"):
            single_run.run(threading.Event())


def test_once_ends_with_an_error_if_the_messagebox_does_not_answer(
    box: Box, tmp_path: Path, single_run: PipelineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_file_location(box, tmp_path / "in")
    lost = MessageBoxUnavailable("The MessageBox does not answer any more.")

    def lose(*_: object, **__: object) -> NoReturn:
        raise lost

    monkeypatch.setattr(pipeline_process, "select_locations_to_serve", lose)
    with pytest.raises(MessageBoxUnavailable):
        single_run.run(threading.Event())


def test_a_bulk_location_reports_all_rows_that_its_jobs_have_counted(box: Box, login: Login, tmp_path: Path) -> None:
    location = add_bulk_location(box, tmp_path / "in")
    running = RunningBulkLocation(NO_SESSION, location, login=login, home=tmp_path)
    seen = BulkProgress(location="bulk", rows=90, bad=0, rate=5.0, files_left=1, bytes_left=7, bytes_total=70)
    running.last_progress, running._files.is_busy = seen, True
    assert (running.get_progress().rows, running.get_progress().remaining) == (90, 7)
    # The last part of the file was not in any progress.
    running._files.counts["published"] = 100
    running._files.is_busy = False
    assert (running.get_progress().rows, running.get_progress().remaining) == (100, 0)


def test_once_reports_its_progress(
    box: Box, tmp_path: Path, single_run: PipelineProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sinks are reported as waiting."""
    add_bulk_location(box, tmp_path / "in")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"1,EU,1.5,1\n")
    add_sink(box, SparkSink("parquet", "lake"))
    seen = BulkProgress(location="bulk", rows=90, bad=3, rate=5.4, files_left=1, bytes_left=7, bytes_total=70)
    shown: list[LocationListing] = []
    watched: list[BulkProgress] = []

    def receive(files: BulkFiles, connection: Connection) -> bool:
        if shown or box.count("file claims") == 0:
            return False
        files.is_busy = True
        wait_until(lambda: list_locations(box.connection)[0].remaining, what="a reading")
        shown.extend(list_locations(box.connection))
        assert [sink.state for sink in list_sinks(box.connection)] == ["waiting"]
        files.counts.update(published=100, suspended=3)
        files.is_busy = False
        wait_until(lambda: list_locations(box.connection)[0].published == 100, what="the end of the job")
        shown.extend(list_locations(box.connection))
        for claim in box.file_claims():
            box.delete_file_claim(claim.interchange_id)
        return True

    monkeypatch.setattr(BulkFiles, "receive", receive)
    monkeypatch.setattr(BulkMeter, "read", lambda *_: seen)
    single_run._watcher = lambda bulk, written: watched.extend(bulk)
    single_run.run(threading.Event())
    reported = [(entry.state, entry.published, entry.rate, entry.remaining) for entry in shown]
    assert reported == [("receiving", 87, 5, 7), ("receiving", 100, 0, 0)]
    assert set(watched) == {seen}
    assert box.count("running locations") == 0
