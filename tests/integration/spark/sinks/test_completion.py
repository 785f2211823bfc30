"""A full batch is completed while the next one is written, and by the next process if this one dies."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.adapters import SparkSink
from postroom.errors import ClaimLost, Unavailable
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.sinks.sink_batches import SeqRange, SinkBatch, SinkQueue
from tests.support.box import Box
from tests.support.sinks import (
    Killed,
    add_sink,
    drain_batch,
    drain_waiting,
    make_drain,
    publish,
    read_lake,
    read_port_id,
)

_WAIT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def lake(box: Box) -> None:
    add_sink(box, SparkSink("parquet", "lake", max_messages=2))


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


def read_ids(home: Path) -> Counter[str]:
    return Counter(str(row["message_id"]) for row in read_lake(home / "lake"))


def test_a_full_batch_is_completed_while_the_next_one_is_written(
    box: Box, host: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = publish(box, b"a", b"b", b"c")
    next_batch = threading.Event()
    steps: list[str] = []
    complete = SinkQueue.complete

    def complete_later(self: SinkQueue, connection: Connection, batch: SinkBatch) -> int:
        assert next_batch.wait(_WAIT_SECONDS)
        return complete(self, connection, batch)

    def at(step: str) -> None:
        steps.append(step)
        if steps.count("written") == 2:
            next_batch.set()

    monkeypatch.setattr(SinkQueue, "complete", complete_later)
    assert drain_waiting(make_drain(box, tmp_path, at), host, read_port_id(box)) == 3
    assert read_ids(tmp_path) == Counter(ids)
    assert box.count("sink batches") == box.count("queued") == 0
    assert check(box.connection) == []


def test_the_next_process_completes_a_written_batch_without_writing_it(
    box: Box, host: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = publish(box, b"a", b"b")

    def die(*_: object) -> int:
        raise Killed("before the batch is completed")

    with monkeypatch.context() as patch:
        patch.setattr(SinkQueue, "complete", die)
        with pytest.raises(Killed):
            drain_waiting(make_drain(box, tmp_path), host, read_port_id(box))
    assert box.count("queued") == 2
    assert SinkQueue("Default").find_waiting_ports(box.connection) == {read_port_id(box)}
    steps: list[str] = []
    assert drain_batch(make_drain(box, tmp_path, steps.append), box) is None
    assert steps == []
    assert read_ids(tmp_path) == Counter(ids)
    assert box.count("sink batches") == box.count("queued") == 0
    assert check(box.connection) == []


def test_a_batch_that_could_not_be_completed_is_completed_later(
    box: Box, host: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = publish(box, b"a", b"b")

    def fail(*_: object) -> int:
        raise Unavailable("The MessageBox does not answer.")

    drain = make_drain(box, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(SinkQueue, "complete", fail)
        with pytest.raises(Unavailable):
            drain_waiting(drain, host, read_port_id(box))
    assert drain_waiting(drain, host, read_port_id(box)) == 0
    assert read_ids(tmp_path) == Counter(ids)
    assert box.count("sink batches") == box.count("queued") == 0


def test_a_process_that_was_frozen_cannot_complete_a_batch_again(box: Box, host: Connection) -> None:
    publish(box, b"a", b"b", b"c")
    queue, port_id = SinkQueue("Default"), read_port_id(box)
    batch = open_batch(queue, host, port_id)
    assert queue.set_written(host, batch) == 2
    next_batch = open_batch(queue, host, port_id)
    assert next_batch.batch_id != batch.batch_id
    [left] = queue.find_written(host, port_id)
    assert queue.complete(host, left) == 2
    for late in (queue.complete, queue.set_written):
        with pytest.raises(ClaimLost):
            late(host, batch)
    assert queue.complete(host, next_batch) == 1
    assert check(box.connection) == []


def test_a_task_cannot_remove_a_message_from_a_written_batch(box: Box, host: Connection) -> None:
    publish(box, b"a")
    queue = SinkQueue("Default")
    batch = open_batch(queue, host, read_port_id(box))
    queue.set_written(host, batch)
    for late in (
        lambda: queue.lock(host, batch.batch_id, batch.attempt),
        lambda: queue.record_attempt(host, batch.batch_id, batch.attempt, batch.seqs[0]),
        lambda: queue.read_rows(host, batch.batch_id, batch.attempt, SeqRange(batch.seqs[0], batch.seqs[0])),
    ):
        with pytest.raises(ClaimLost):
            late()


def open_batch(queue: SinkQueue, connection: Connection, port_id: uuid.UUID) -> SinkBatch:
    batch = queue.open_batch(connection, port_id, limit=2)
    assert batch is not None
    return batch
