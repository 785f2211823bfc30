"""The sinks of a host: what a single run reports, and the backoff of a pipeline process.

The writer is replaced: there is no session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.adapters import SinkDefinition, SparkSink
from postroom.errors import StateError, Unavailable
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.sinks.sink_batches import SINK_LOCK, SinkBatch, to_lock_number
from postroom.processes.backoff import Backoff
from postroom.spark.sinks import running_sinks
from postroom.spark.sinks.file_sink import LocalTarget
from postroom.spark.sinks.running_sinks import Sinks
from postroom.spark.sinks.task import SinkTask
from postroom.spark.sinks.writer import SparkWriter
from tests.support.box import Box
from tests.support.sinks import InProcessWriter, add_sink, drain_sinks, publish, read_lake, read_port_id
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


@pytest.fixture
def sinks(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sinks:
    """Return two sinks. Both write in this process."""
    writer = InProcessWriter(tmp_path)
    for name in ("target", "row_format", "write"):
        monkeypatch.setattr(SparkWriter, name, lambda _, *given, name=name: getattr(writer, name)(*given))
    monkeypatch.setattr(SparkWriter, "has_died", lambda _: False)
    for name in ("Bad", "Good"):
        add_sink(box, SparkSink("parquet", name, interval=0.0, max_messages=2), name=name)
    publish(box, b"1", b"2")
    return make_sinks(box, tmp_path)


def make_sinks(box: Box, home: Path, *, once: bool = False) -> Sinks:
    session: Any = None
    login = Login(url=box.url, user=box.host().role_name)
    return Sinks(session, box.host(), login=login, home=home, once=once)


@pytest.fixture
def single_run(box: Box, sinks: Sinks, tmp_path: Path) -> Sinks:
    """Return the two sinks, for a single run."""
    return make_sinks(box, tmp_path, once=True)


def fail_bad(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    write = SparkWriter.write

    def fails(self: SparkWriter, sink: SinkDefinition, batch: SinkBatch, task: SinkTask) -> None:
        if task.port.name == "Bad":
            raise error
        write(self, sink, batch, task)

    monkeypatch.setattr(SparkWriter, "write", fails)


def test_a_sink_that_cannot_be_written_is_reported(
    box: Box, host: Connection, single_run: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_bad(monkeypatch, Unavailable("The lake is away."))
    [problem] = drain_sinks(single_run, host)
    assert isinstance(problem, StateError)
    assert (problem.what, problem.why) == ("Bad: some messages could not be written.", "The lake is away.")
    assert (single_run.counts["written"], len(read_lake(tmp_path / "Good")), box.count("scheduled")) == (2, 2, 2)
    assert drain_sinks(make_sinks(box, tmp_path, once=True), host) == []


def test_an_unexpected_error_does_not_affect_the_other_sinks(
    box: Box, host: Connection, single_run: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unknown whether the batch was written, so it is kept, and a later run continues it."""
    fail_bad(monkeypatch, RuntimeError("An error occurred while calling o7.save"))
    with monkeypatch.context() as patched:
        patched.setattr(LocalTarget, "abandon", lambda *_: False)
        [problem] = drain_sinks(single_run, host)
    assert isinstance(problem, StateError)
    assert "An error occurred" in problem.why
    assert (len(read_lake(tmp_path / "Good")), box.count("sink batches")) == (2, 1)


def test_several_sinks_are_drained_at_the_same_time(
    host: Connection, single_run: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, write = threading.Barrier(2, timeout=PATIENCE), SparkWriter.write

    def write_with_the_other(self: SparkWriter, sink: SinkDefinition, batch: SinkBatch, task: SinkTask) -> None:
        both.wait()
        write(self, sink, batch, task)

    monkeypatch.setattr(SparkWriter, "write", write_with_the_other)
    assert drain_sinks(single_run, host) == []
    assert single_run.counts["written"] == 4
    assert [len(read_lake(tmp_path / name)) for name in ("Bad", "Good")] == [2, 2]


def test_messages_that_are_published_meanwhile_are_left_for_the_next_run(
    box: Box, host: Connection, single_run: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pipeline run --once` ends although hosts publish as fast as it writes."""
    publish(box, b"3")
    write = SparkWriter.write

    def publish_more(self: SparkWriter, sink: SinkDefinition, batch: SinkBatch, task: SinkTask) -> None:
        if task.port.name == "Good":
            publish(box, b"later", b"later")
        write(self, sink, batch, task)

    with monkeypatch.context() as patched:
        patched.setattr(SparkWriter, "write", publish_more)
        assert drain_sinks(single_run, host) == []
    assert single_run.written["Good"] == 4
    assert box.queued()["Good"] == 3
    next_run = make_sinks(box, tmp_path, once=True)
    assert drain_sinks(next_run, host) == []
    assert next_run.written["Good"] == 3
    assert drain_sinks(make_sinks(box, tmp_path, once=True), host) == []


def test_a_sink_that_another_process_serves_is_reported(
    box: Box, host: Connection, single_run: Sinks, tmp_path: Path
) -> None:
    with connect(box.url, user=box.host().role_name) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", (SINK_LOCK, to_lock_number(read_port_id(box, "Bad"))))
        [problem] = drain_sinks(single_run, host)
    assert isinstance(problem, StateError)
    assert problem.what == "Bad is served by another process."
    assert len(read_lake(tmp_path / "Good")) == 2


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of failures that the backoff is called with. It does not delay."""
    numbers: list[int] = []

    class RecordingBackoff(Backoff):
        def delay(self, failures: int) -> float:
            numbers.append(failures)
            return 0.0

    monkeypatch.setattr(running_sinks, "_BACKOFF", RecordingBackoff(first=0.5, longest=30.0))
    monkeypatch.setattr(running_sinks, "_CHECK_SECONDS", 0.0)
    return numbers


def check_until(sinks: Sinks, host: Connection, condition: Callable[[], bool], *, what: str) -> None:
    def check() -> bool:
        sinks.check(host)
        return condition()

    wait_until(check, what=what)


def test_a_batch_that_cannot_be_finished_is_retried_after_a_growing_delay(
    host: Connection, sinks: Sinks, failures: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        fail_bad(patched, RuntimeError("An error occurred while calling o7.save"))
        patched.setattr(LocalTarget, "abandon", lambda *_: False)
        check_until(sinks, host, lambda: len(failures) >= 3, what="three failures")
    assert failures[:3] == [1, 2, 3]
    check_until(sinks, host, lambda: len(read_lake(tmp_path / "Bad")) == 2, what="the batch")
    sinks.stop()


def test_the_delay_starts_again_after_a_written_batch(
    box: Box, host: Connection, sinks: Sinks, failures: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages of a failed batch wait for their retry. The next batch has other messages."""
    with monkeypatch.context() as patched:
        fail_bad(patched, Unavailable("The lake is away."))
        check_until(sinks, host, lambda: len(failures) == 1, what="the first failure")
        publish(box, b"3")
        check_until(sinks, host, lambda: len(failures) == 2, what="the second failure")
    publish(box, b"4")
    check_until(sinks, host, lambda: len(read_lake(tmp_path / "Bad")) == 1, what="the written batch")
    fail_bad(monkeypatch, Unavailable("The lake is away."))
    publish(box, b"5")
    check_until(sinks, host, lambda: len(failures) == 3, what="the third failure")
    assert failures == [1, 2, 1]
    sinks.stop()
