"""What `postroom pipeline run --once` says of sinks that it could not write. No session: what writes is replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.adapters import AnySink, SparkSink
from postroom.errors import PostroomError, StateError, Unavailable
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.streams.sink_batches import SinkBatch
from postroom.spark.login import Login
from postroom.spark.sinks.files import LocalTarget
from postroom.spark.sinks.running_sinks import SINK_LOCK, Sinks, sink_lock
from postroom.spark.sinks.task import SinkTask
from postroom.spark.sinks.writer import SparkWriter
from tests.support.box import Box
from tests.support.sinks import InProcess, add_sink, lake, port_of, publish


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


@pytest.fixture
def sinks(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sinks:
    """Two of them; both would write in this process."""
    writer = InProcess(tmp_path)
    for name in ("target", "row_format", "write"):
        monkeypatch.setattr(SparkWriter, name, lambda _, *given, name=name: getattr(writer, name)(*given))
    monkeypatch.setattr(SparkWriter, "has_died", lambda _: False)
    for name in ("Bad", "Good"):
        add_sink(box, SparkSink("parquet", name), name=name)
    publish(box, b"1", b"2")
    session: Any = None
    return Sinks(session, box.host(), login=Login(url=box.url, user=box.host().role_name), home=tmp_path)


def drained(sinks: Sinks, host: Connection) -> list[PostroomError]:
    return sinks.drain_all(host, threading.Event())


def fail_bad(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    write = SparkWriter.write

    def fails(self: SparkWriter, sink: AnySink, batch: SinkBatch, task: SinkTask) -> None:
        if task.port.name == "Bad":
            raise error
        write(self, sink, batch, task)

    monkeypatch.setattr(SparkWriter, "write", fails)


def test_a_sink_that_could_not_be_written_is_a_problem(
    box: Box, host: Connection, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_bad(monkeypatch, Unavailable("The lake is away."))
    [problem] = drained(sinks, host)
    assert isinstance(problem, StateError)
    assert (problem.what, problem.why) == ("Bad: not everything could be written.", "The lake is away.")
    assert (sinks.counts["written"], len(lake(tmp_path / "Good")), box.count("scheduled_queue")) == (2, 2, 2)
    assert drained(sinks, host) == []


def test_what_nobody_has_foreseen_does_not_hold_up_the_others(
    box: Box, host: Connection, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether the batch was written: it stays, and a later run goes on with it."""
    fail_bad(monkeypatch, RuntimeError("An error occurred while calling o7.save"))
    with monkeypatch.context() as patched:
        patched.setattr(LocalTarget, "give_up", lambda *_: False)
        [problem] = drained(sinks, host)
    assert isinstance(problem, StateError)
    assert "An error occurred" in problem.why
    assert (len(lake(tmp_path / "Good")), box.count("sink_batches")) == (2, 1)


def test_when_spark_has_died_there_is_no_turn_for_anybody(
    host: Connection, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_bad(monkeypatch, RuntimeError("Connection refused"))
    monkeypatch.setattr(SparkWriter, "has_died", lambda _: True)
    with pytest.raises(RuntimeError, match="Connection refused"):
        drained(sinks, host)


def test_a_sink_of_another_process_is_told(box: Box, host: Connection, sinks: Sinks, tmp_path: Path) -> None:
    with connect(box.url, user=box.host().role_name) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", (SINK_LOCK, sink_lock(port_of(box, "Bad"))))
        [problem] = drained(sinks, host)
    assert isinstance(problem, StateError)
    assert problem.what == "Bad is served by another process."
    assert len(lake(tmp_path / "Good")) == 2
