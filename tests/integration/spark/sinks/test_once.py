"""`postroom pipeline run --once` reports sinks that it could not write. The writer is replaced: there is no session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.adapters import AnySink, SparkSink
from postroom.errors import PostroomError, StateError, Unavailable
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.streams.sink_batches import SinkBatch
from postroom.spark.sinks.file_sink import LocalTarget
from postroom.spark.sinks.running_sinks import SINK_LOCK, Sinks, to_lock_number
from postroom.spark.sinks.task import SinkTask
from postroom.spark.sinks.writer import SparkWriter
from tests.support.box import Box
from tests.support.sinks import InProcessWriter, add_sink, publish, read_lake, read_port_id


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


def test_a_sink_that_cannot_be_written_is_reported(
    box: Box, host: Connection, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_bad(monkeypatch, Unavailable("The lake is away."))
    [problem] = drained(sinks, host)
    assert isinstance(problem, StateError)
    assert (problem.what, problem.why) == ("Bad: some messages could not be written.", "The lake is away.")
    assert (sinks.counts["written"], len(read_lake(tmp_path / "Good")), box.count("scheduled_queue")) == (2, 2, 2)
    assert drained(sinks, host) == []


def test_an_unexpected_error_does_not_affect_the_other_sinks(
    box: Box, host: Connection, sinks: Sinks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unknown whether the batch was written, so it is kept, and a later run continues it."""
    fail_bad(monkeypatch, RuntimeError("An error occurred while calling o7.save"))
    with monkeypatch.context() as patched:
        patched.setattr(LocalTarget, "abandon", lambda *_: False)
        [problem] = drained(sinks, host)
    assert isinstance(problem, StateError)
    assert "An error occurred" in problem.why
    assert (len(read_lake(tmp_path / "Good")), box.count("sink_batches")) == (2, 1)


def test_no_sink_is_drained_after_spark_has_died(
    host: Connection, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_bad(monkeypatch, RuntimeError("Connection refused"))
    monkeypatch.setattr(SparkWriter, "has_died", lambda _: True)
    with pytest.raises(RuntimeError, match="Connection refused"):
        drained(sinks, host)


def test_a_sink_that_another_process_serves_is_reported(
    box: Box, host: Connection, sinks: Sinks, tmp_path: Path
) -> None:
    with connect(box.url, user=box.host().role_name) as other:
        other.execute("SELECT pg_advisory_lock(%s, %s)", (SINK_LOCK, to_lock_number(read_port_id(box, "Bad"))))
        [problem] = drained(sinks, host)
    assert isinstance(problem, StateError)
    assert problem.what == "Bad is served by another process."
    assert len(read_lake(tmp_path / "Good")) == 2
