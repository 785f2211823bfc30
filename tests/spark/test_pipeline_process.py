"""A pipeline process serves the enabled locations of its host, and follows the configuration (ORS-07)."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from postroom import Schedule, pipelines
from postroom.errors import StateError
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake.location_progress import LocationState
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.ports import receive_locations as locations
from postroom.spark import pipeline_process
from postroom.spark.pipeline_process import PipelineProcess
from tests.support.box import Box
from tests.support.bulk_location import add_bulk_location
from tests.support.contents import Contents
from tests.support.file_location import add_file_location
from tests.support.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = b'{"region": "EU"}'


class Running:
    """A pipeline process in a thread."""

    def __init__(self, session: SparkSession, box: Box, login: Login, home: Path) -> None:
        self._stop = threading.Event()
        self._process = PipelineProcess(session, box.host(), login=login, home=home)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.counts: Counter[str] = Counter()

    def _run(self) -> None:
        self.counts = self._process.run(self._stop)

    def stop(self) -> Counter[str]:
        self._stop.set()
        self._thread.join()
        return self.counts


@contextmanager
def running(session: SparkSession, box: Box, login: Login, home: Path) -> Iterator[Running]:
    process = Running(session, box, login, home)
    try:
        yield process
    finally:
        process.stop()


def wait_for_messages(box: Box, count: int) -> None:
    wait_until(lambda: box.count("messages") >= count, what=f"{count} messages")
    assert box.count("messages") == count


@pytest.fixture(autouse=True)
def _subscriber(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")


def test_locations_are_added_disabled_and_scheduled_while_the_process_runs(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path
) -> None:
    add_file_location(box, folder / "one", name="one", settle=0.05)
    with running(session, box, login, tmp_path) as process:
        wait_until((folder / "one").exists, what="the folder of the location")
        (folder / "one" / "a.json").write_bytes(ORDER)
        wait_for_messages(box, 1)

        add_file_location(box, folder / "two", name="two")
        box.connection.execute("SELECT change_routing()")
        wait_until((folder / "two" / ".postroom").exists, what="the new location to receive")
        (folder / "two" / "b.json").write_bytes(ORDER)
        wait_for_messages(box, 2)

        locations.disable(box.connection, "one")
        lock = "SELECT count(*) FROM pg_locks WHERE classid = 7003"
        wait_until(lambda: box.one(lock) == 1, what="the disabled location to stop")
        (folder / "one" / "c.json").write_bytes(ORDER)
        (folder / "two" / "d.json").write_bytes(ORDER)
        wait_for_messages(box, 3)
        assert (folder / "one" / "c.json").exists()

        locations.enable(box.connection, "one")
        wait_for_messages(box, 4)
        wait_until(lambda: box.one(lock) == 2, what="both locations to receive")
        locations.set_schedule(box.connection, "one", Schedule(stop="2000-12-31"))
        wait_until(lambda: box.one(lock) == 1, what="the location to stop outside its schedule")
        (folder / "one" / "e.json").write_bytes(ORDER)
        locations.set_schedule(box.connection, "one", Schedule(start="2000-12-31"))
        wait_for_messages(box, 5)
        wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
        counts = process.stop()
    assert counts == {"files": 5, "published": 5, "suspended": 0, "routed": 0, "dropped": 0, "empty": 0}
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name IN ('postroom claims', 'postroom stream')"
    wait_until(lambda: box.one(sessions) == 0, what="no session left over")


def test_a_changed_location_is_restarted_with_its_new_configuration(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path
) -> None:
    add_file_location(box, folder, name="drop")
    with running(session, box, login, tmp_path):
        (folder / "a.json").write_bytes(ORDER)
        wait_for_messages(box, 1)
        archive = tmp_path / "archive"
        box.merge_locations(adapter={"archive": str(archive)})
        box.connection.execute("SELECT change_routing()")

        def is_archived() -> bool:
            if not any(path.is_file() for path in folder.iterdir()):
                (folder / "b.json").write_bytes(ORDER)
            return archive.exists() and bool(list(archive.iterdir()))

        wait_until(is_archived, what="an archived file")


def test_what_arrives_after_a_change_is_taken_is_received_by_the_new_definition(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No file is written while the change is being taken. The next one is never received by the old definition. The
    other location continues without a restart."""
    add_file_location(box, folder / "drop", name="drop")
    add_file_location(box, folder / "other", name="other")
    caplog.set_level(logging.INFO)
    with running(session, box, login, tmp_path):
        for name in ("drop", "other"):
            wait_until((folder / name).exists, what="the folder of the location")
            (folder / name / "a.json").write_bytes(ORDER)
        wait_for_messages(box, 2)
        for number in range(3):
            archive = tmp_path / f"archive-{number}"
            with box.connection.transaction():
                box.connection.execute("SELECT change_routing()")
                box.merge_locations("drop", adapter={"archive": str(archive)})
            wait_until_taken(box.connection, ["Default"], timeout=PATIENCE)
            (folder / "drop" / "b.json").write_bytes(ORDER)
            wait_until(lambda: box.count("messages") == 3 + number, what="the file to be received")  # noqa: B023
            wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
            assert len(list(archive.iterdir())) == 1
    assert box.count("host instances") == 0
    stopped = [record.getMessage() for record in caplog.records if "no longer receiving" in record.getMessage()]
    assert sorted(stopped) == ["drop: no longer receiving"] * 4 + ["other: no longer receiving"]


def test_a_failed_stream_is_restarted(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_file_location(box, folder)
    role = sql.Identifier(box.host().role_name)
    with running(session, box, login, tmp_path):
        (folder / "a.json").write_bytes(ORDER)
        wait_for_messages(box, 1)
        wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
        # Files can be claimed and read, but nothing can be published.
        hosts = sql.Identifier(_hosts_role(box))
        box.connection.execute(sql.SQL("REVOKE EXECUTE ON FUNCTION take_receipts FROM {}").format(hosts))
        (folder / "b.json").write_bytes(ORDER)
        wait_until(lambda: "the stream failed" in caplog.text, what="a failure")
        assert "permission denied" in caplog.text
        box.connection.execute(sql.SQL("GRANT EXECUTE ON FUNCTION take_receipts TO {}").format(role))
        wait_for_messages(box, 2)


def _hosts_role(box: Box) -> str:
    return f"postroom_{box.read_id()}_hosts"


def test_a_second_process_of_the_host_is_a_standby(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path
) -> None:
    add_file_location(box, folder)
    claimers = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom claims'"
    with ExitStack() as stack:
        first = stack.enter_context(running(session, box, login, tmp_path))
        (folder / "a.json").write_bytes(ORDER)
        wait_for_messages(box, 1)
        second = stack.enter_context(running(session, box, login, tmp_path / "second"))
        wait_until(lambda: box.one(claimers) == 2, what="both at work")
        (folder / "b.json").write_bytes(ORDER)
        wait_for_messages(box, 2)
        wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
        assert first.stop()["files"] == 2
        (folder / "c.json").write_bytes(ORDER)
        wait_for_messages(box, 3)
        wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
        assert second.stop()["files"] == 1


def test_once_receives_what_is_there_and_ends(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path
) -> None:
    add_file_location(box, folder, settle=0.2)
    for number in range(3):
        (folder / f"{number}.json").write_bytes(ORDER)
    (folder / "bad.json").write_bytes(b"{")
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path, once=True)
    assert process.run(threading.Event()) == {
        "files": 4,
        "published": 3,
        "suspended": 1,
        "routed": 0,
        "dropped": 0,
        "empty": 0,
    }
    assert not list(folder.glob("*.json"))
    assert box.queued() == {"Europe": 3}
    nothing = PipelineProcess(session, box.host(), login=login, home=tmp_path, once=True)
    assert nothing.run(threading.Event()).total() == 0


def test_streams_are_started_one_after_the_other(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_process, "_STARTING_AT_ONCE", 1)
    for name in ("one", "two"):
        add_file_location(box, folder / name, name=name)
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path)
    process._apply_configuration()
    running = list(process._runner.running.values())
    try:
        wait_until(
            lambda: all(location._is_served_here.is_set() for location in running), what="the intake of both locations"
        )
        seen = set()

        def all_answered() -> bool:
            process._check_locations()
            seen.add(sum(location.is_starting for location in running))
            return all(location._query is not None and not location.is_starting for location in running)

        wait_until(all_answered, what="both streams to answer")
        assert seen == {0, 1}

        def both_receive() -> bool:
            process._check_locations()
            return {one.state for one in box.running_locations()} == {"receiving"}

        wait_until(both_receive, what="both locations to receive")
    finally:
        process._stop_all()


def test_a_location_is_receiving_after_its_workers_have_started(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path
) -> None:
    add_file_location(box, folder)
    blocked_workers = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom receive' AND wait_event_type = 'Lock'"
    )
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path)
    process._apply_configuration()
    [location] = process._runner.running.values()

    def workers_are_blocked() -> bool:
        process._check_locations()
        has_answered = location._query is not None and not location.is_starting
        return has_answered and bool(box.one(blocked_workers) == 2)

    def is_receiving() -> bool:
        process._check_locations()
        return location.get_progress().state is LocationState.RECEIVING

    try:
        # Another connection: a transaction does not see how pg_stat_activity changes.
        with connect(box.url) as blocking, blocking.transaction():
            # A worker reads the subscriptions when it starts.
            Contents(blocking).lock("routing version")
            wait_until(workers_are_blocked, what="workers that wait for the subscriptions")
            assert not is_receiving()
            assert process.find_problems() == ["drop is starting."]
        wait_until(is_receiving, what="the location to receive")
        wait_until(lambda: process.find_problems() == [], what="the report of the location")
        metrics = {metric.name: metric.values for metric in process.collect_metrics()}
        assert metrics["postroom_service_state"]["Default", "location", "drop", "receiving"] == 1
        assert metrics["postroom_received"]["Default", "drop", "published"] == 0
        assert metrics["postroom_messagebox_up"][()] == 1
    finally:
        process._stop_all()


def test_once_continues_with_the_other_locations_when_one_fails(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path
) -> None:
    (folder / "a").mkdir(parents=True)
    add_bulk_location(box, folder / "a", name="a", bad_rows=0)
    (folder / "a" / "bad.csv").write_bytes(b"what is this\n")
    add_file_location(box, folder / "b", name="b", settle=0.05)
    (folder / "b").mkdir(parents=True, exist_ok=True)
    (folder / "b" / "good.json").write_bytes(ORDER)
    threads: set[str] = set()
    process = PipelineProcess(
        session,
        box.host(),
        login=login,
        home=tmp_path,
        once=True,
        watcher=lambda *_: threads.update(thread.name for thread in threading.enumerate()),
    )
    with pytest.raises(StateError, match=r"a has stopped: .*1 of 1 rows is bad"):
        process.run(threading.Event())
    assert box.queued() == {"Europe": 1}
    # A process that goes on logs each change of a service. A single run raises at its end what it could not do.
    assert "intake of b" in threads
    assert "services" not in threads


def test_a_location_that_cannot_be_started_does_not_affect_the_others(
    session: SparkSession, box: Box, login: Login, folder: Path, tmp_path: Path
) -> None:
    options = {"subscribe": "orders", "kafka.bootstrap.servers": "localhost:1"}
    # Spark does not include the jar that reads Kafka.
    add_bulk_location(
        box, None, name="a topic", format="kafka", schema=None, options=options, pipeline=pipelines.Rows()
    )
    add_file_location(box, folder, name="drop", settle=0.05)

    def find_failing() -> list[str | None]:
        return [one.reason for one in box.running_locations() if one.state == "failing"]

    with running(session, box, login, tmp_path):
        (folder / "a.json").write_bytes(ORDER)
        wait_for_messages(box, 1)
        report = str(wait_until(find_failing, what="a report")[0])
        assert report.startswith("the stream cannot be started: "), report
        assert "cannot read or write the format 'kafka'" in report

    (folder / "b.json").write_bytes(ORDER)
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path, once=True)
    with pytest.raises(StateError, match=r"cannot read or write the format 'kafka'\.\n.*\n.*spark\.jars"):
        process.run(threading.Event())
    assert box.queued() == {"Europe": 2}
