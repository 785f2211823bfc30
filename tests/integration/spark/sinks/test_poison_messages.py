"""A message that kills the worker that makes its row is found after MAX_ATTEMPTS, and suspended alone (ADR 0029)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from postroom.adapters import SinkDefinition, SparkSink
from postroom.agent.poison_messages import MAX_ATTEMPTS
from postroom.errors import ClaimLost, DeliveryRefused, MessageBoxUnavailable
from postroom.maps import Xslt
from postroom.maps.port_maps import PortMaps
from postroom.maps.running import RunningMaps
from postroom.message import Message
from postroom.messagebox.connection import Login
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.sinks.sink_batches import SeqRange, SinkBatch, SinkQueue, SinkRows
from postroom.pipelines import Send, components
from postroom.pipelines.definition import FORMAT_SECONDS
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT
from postroom.spark.sinks import drain, task
from postroom.spark.sinks.row_format import RowFormat, convert_rows
from postroom.spark.sinks.task import SinkPort, SinkTask
from postroom.spark.worker import GRACE
from tests.integration.spark.sinks.test_steps import make_sink, read_ids
from tests.support import changes as instance_changes
from tests.support.box import Box
from tests.support.sinks import (
    InProcessWriter,
    Killed,
    add_sink,
    drain_batch,
    drain_waiting,
    make_drain,
    publish,
    read_port_id,
)

FailWith = Callable[[BaseException | None], None]


@pytest.fixture
def fail_with(monkeypatch: pytest.MonkeyPatch) -> FailWith:
    """Set what happens to the task that makes the row of the poison message."""
    raised: list[BaseException | None] = [Killed("its worker")]

    def mapped(maps: RunningMaps, message: Message) -> Message:
        assert message.body is not None
        if raised[0] is not None and b"".join(message.body.body.chunks()) == b"poison":
            raise raised[0]
        return message

    def converted(format: RowFormat, rows: SinkRows) -> tuple[list[pa.RecordBatch], list[int]]:
        if raised[0] is not None and b"poison" in rows.bodies:
            raise raised[0]
        return convert_rows(format, rows)

    monkeypatch.setattr(RunningMaps, "map_message", mapped)
    monkeypatch.setattr(task, "convert_rows", converted)
    return lambda error: raised.__setitem__(0, error)


@pytest.fixture
def four_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry the task as Spark does: the process survives its workers, and the job fails after four attempts."""
    write = InProcessWriter.write

    def attempts(self: InProcessWriter, sink: SinkDefinition, batch: SinkBatch, given: SinkTask) -> None:
        for is_retry in (False, True, True, True):
            monkeypatch.setattr(task, "guard_worker", lambda _, is_retry=is_retry: nullcontext(is_retry))
            with suppress(Killed):
                return write(self, sink, batch, given)
        raise RuntimeError("Python worker exited unexpectedly (crashed)")

    monkeypatch.setattr(InProcessWriter, "write", attempts)


def attempts_in(box: Box) -> list[int]:
    return box.sink_attempts()


@pytest.mark.parametrize("kind", ["files", "table", "other"])
def test_a_poison_message_is_suspended_and_the_others_are_written(
    box: Box, kind: str, tmp_path: Path, fail_with: FailWith
) -> None:
    sink = make_sink(kind, box).model_copy(update={"max_messages": 10})
    add_sink(box, sink)
    first, bad, last = publish(box, b"a", b"poison", b"z")
    with pytest.raises(Killed):
        drain_batch(make_drain(box, tmp_path), box)
    assert attempts_in(box) == [], "a first attempt is not recorded"
    for attempt in range(1, MAX_ATTEMPTS + 1):
        with pytest.raises(Killed):
            drain_batch(make_drain(box, tmp_path), box)
        assert attempts_in(box) == [attempt], "of that message alone"
    assert drain_batch(make_drain(box, tmp_path), box) == 2
    assert read_ids(box, sink, tmp_path) == Counter([first, last])
    assert box.suspended() == [("DELIVERY_REFUSED", True)]
    assert "The worker that processed it died at every attempt" in box.read_error()
    assert (attempts_in(box), box.count("sink batches")) == ([], 0)
    # Corrected and resumed, it is in a later batch without recorded attempts.
    fail_with(None)
    instance_changes.resume(box.connection, box.suspended_rows()[0].instance_id)
    assert drain_batch(make_drain(box, tmp_path), box) == 1
    assert read_ids(box, sink, tmp_path) == Counter([first, bad, last])
    assert check(box.connection) == []


def test_a_poison_message_is_found_within_one_job_and_its_failure_is_routed(
    box: Box, tmp_path: Path, fail_with: FailWith, four_attempts: None
) -> None:
    sink = SparkSink("parquet", "lake")
    add_sink(box, sink, route_failures=True)
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    first, _, last = publish(box, b"a", b"poison", b"z")
    assert drain_batch(make_drain(box, tmp_path), box) == 2
    assert read_ids(box, sink, tmp_path) == Counter([first, last])
    assert (box.queued(), box.suspended()) == ({"Errors": 1}, [])


def test_many_messages_are_isolated_in_pieces_and_only_those_of_the_failed_piece_alone(
    box: Box, tmp_path: Path, fail_with: FailWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "ISOLATED_TOGETHER", 2)
    sink = SparkSink("parquet", "lake")
    add_sink(box, sink)
    ids = publish(box, b"a", b"b", b"c", b"poison", b"d")
    for recorded in ([], [0, 0], *([attempt] for attempt in range(1, MAX_ATTEMPTS + 1))):
        with pytest.raises(Killed):
            drain_batch(make_drain(box, tmp_path), box)
        assert attempts_in(box) == recorded
    assert drain_batch(make_drain(box, tmp_path), box) == 4
    assert read_ids(box, sink, tmp_path) == Counter(ids) - Counter([ids[3]])
    assert box.suspended() == [("DELIVERY_REFUSED", True)]
    assert (attempts_in(box), box.count("sink batches")) == ([], 0)


def test_a_batch_that_is_opened_again_needs_two_statements_for_a_piece(
    box: Box, tmp_path: Path, fail_with: FailWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "ISOLATED_TOGETHER", 2)
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"a", b"b", b"poison")
    with pytest.raises(Killed):
        drain_batch(make_drain(box, tmp_path), box)
    fail_with(None)
    calls: list[str] = []
    for name in ("suspect", "record_attempt", "clear_attempts"):
        method = getattr(SinkQueue, name)

        def called(*arguments: object, name: str = name, method: Callable[..., object] = method) -> object:
            calls.append(name)
            return method(*arguments)

        monkeypatch.setattr(SinkQueue, name, called)
    assert drain_batch(make_drain(box, tmp_path), box) == 3
    assert calls == ["suspect", "clear_attempts"] * 2


@pytest.mark.parametrize("at_most", [drain.MAX_BATCH_ATTEMPTS, 1])
def test_several_poison_messages_are_found_without_using_up_retries(
    box: Box,
    tmp_path: Path,
    fail_with: FailWith,
    four_attempts: None,
    monkeypatch: pytest.MonkeyPatch,
    at_most: int,
) -> None:
    """The batch is opened again at once while poison messages are found, but at most MAX_BATCH_ATTEMPTS times."""
    monkeypatch.setattr(drain, "MAX_BATCH_ATTEMPTS", at_most)
    sink = SparkSink("parquet", "lake")
    add_sink(box, sink, retry_count=0)
    first, _, middle, _, last = publish(box, b"a", b"poison", b"b", b"poison", b"c")
    count = drain_waiting(make_drain(box, tmp_path), box.connection, read_port_id(box))
    found = [code for code, _ in box.suspended()]
    if at_most > 1:
        assert (count, found) == (3, ["DELIVERY_REFUSED"] * 2)
        assert read_ids(box, sink, tmp_path) == Counter([first, middle, last])
    else:
        assert (count, found) == (0, ["DELIVERY", "DELIVERY_REFUSED", "DELIVERY", "DELIVERY", "DELIVERY"])
        assert read_ids(box, sink, tmp_path) == Counter()
    assert (attempts_in(box), box.count("sink batches")) == ([], 0)
    assert check(box.connection) == []


def opened(box: Box, home: Path) -> tuple[SinkBatch, SinkTask]:
    """Open a batch with one poison message. Return it with its task."""
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"a", b"poison")
    some = make_drain(box, home)
    batch = some.queue.open_batch(box.connection, read_port_id(box), limit=10)
    assert batch is not None
    return batch, SinkTask(
        login=Login(url=box.url, user=box.host().role_name),
        host="Default",
        port=SinkPort(name="Lake", kind="spark_sink", uri="lake", route_failures=False),
        batch_id=batch.batch_id,
        attempt=batch.attempt,
        rows=RowFormat(columns=(), body="binary"),
    )


def test_an_attempt_that_the_worker_survives_is_not_counted(box: Box, tmp_path: Path, fail_with: FailWith) -> None:
    batch, task = opened(box, tmp_path)
    seqs = SeqRange(batch.seqs[0], batch.seqs[-1])
    fail_with(MessageBoxUnavailable("the connection is lost"))
    for _ in range(2 * MAX_ATTEMPTS):
        with pytest.raises(MessageBoxUnavailable):
            list(task.read(box.connection, seqs, isolated=True))
    assert attempts_in(box) == []
    # The next worker may not survive a lack of memory.
    fail_with(MemoryError())
    with pytest.raises(MemoryError):
        list(task.read(box.connection, seqs, isolated=True))
    assert attempts_in(box) == [1]
    fail_with(None)
    [chunk] = task.read(box.connection, seqs, isolated=True)
    assert (chunk.rows.num_rows, chunk.seqs) == (2, list(batch.seqs))
    assert (attempts_in(box), box.suspended()) == ([], [])


def test_a_task_that_lost_its_batch_records_no_attempt_and_suspends_nothing(
    box: Box, tmp_path: Path, fail_with: FailWith
) -> None:
    """The task still runs while another attempt writes the same messages."""
    batch, late = opened(box, tmp_path)
    [_, poison] = SinkQueue("Default").read_messages(
        box.connection, batch.batch_id, batch.attempt, SeqRange(batch.seqs[0], batch.seqs[-1])
    )
    assert make_drain(box, tmp_path).queue.open_batch(box.connection, read_port_id(box), limit=10) is not None
    with pytest.raises(ClaimLost):
        late.suspend_or_route(box.connection, poison.claimed, DeliveryRefused("It cannot be a row."))
    with pytest.raises(ClaimLost):
        SinkQueue("Default").record_attempt(box.connection, batch.batch_id, batch.attempt, batch.seqs[0])
    assert (attempts_in(box), box.suspended(), box.count("queued")) == ([], [], 2)


@pytest.mark.parametrize(
    ("seconds", "pipeline", "longest"),
    [
        ((), PASS_THRU_TRANSMIT, FORMAT_SECONDS),
        ((5.0, 120.0), PASS_THRU_TRANSMIT, 120.0),
        ((5.0,), Send(encode=[components.GzipEncoder()], seconds=90), 90.0),
    ],
)
def test_the_timeout_of_the_worker_is_that_of_the_slowest_call_plus_a_grace_period(
    box: Box,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float, ...],
    pipeline: Send,
    longest: float,
) -> None:
    (tmp_path / "map.xslt").write_text('<a xsl:version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"/>')
    maps = [Xslt("map.xslt", source=f"{n}", target="a", seconds=each) for n, each in enumerate(seconds)]
    timeouts: list[float] = []

    def guard_worker(timeout: float) -> nullcontext[bool]:
        timeouts.append(timeout)
        return nullcontext(False)

    monkeypatch.setattr(task, "guard_worker", guard_worker)
    port = SinkPort(
        name="Lake",
        kind="spark_sink",
        uri="lake",
        route_failures=False,
        maps=PortMaps.pack(maps, tmp_path),
        pipeline=pipeline,
    )
    _, given = opened(box, tmp_path)
    assert list(replace(given, port=port).read_chunks(iter(()))) == []
    assert timeouts == [longest + GRACE]
