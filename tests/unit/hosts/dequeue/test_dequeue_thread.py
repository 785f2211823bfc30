"""A dequeue thread passes one message after the other to its service, and survives exceptions of the service."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NoReturn

import pytest

from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.processing import UNLIMITED, Disposition, Limits, Outcome, ThreadConnections
from postroom.hosts.dequeue.subservice import DequeueThread
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues, QueueTask, ScheduledRetry, Suspension
from tests.support.waiting import PATIENCE
from tests.unit.hosts.dequeue.test_work_buffer import claimed, unpaused_buffer

#: The sizes of the batches that were handled.
sizes: list[int] = []


class Handles:
    """A service that calls a function of the test."""

    def __init__(self, handle: Callable[[ClaimedMessage], Outcome]) -> None:
        self._handle = handle

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None: ...

    def get_limits(self, claimed: ClaimedMessage) -> Limits:
        return UNLIMITED

    def handle(self, batch: Sequence[ClaimedMessage], connections: ThreadConnections) -> list[Outcome]:
        sizes.append(len(batch))
        return [self._handle(each) for each in batch]

    def close(self) -> None: ...


def no_connection() -> NoReturn:
    raise AssertionError("these tests need no connection")


def run_threads(
    count: int, buffer: WorkBuffer, handle: Callable[[ClaimedMessage], Outcome]
) -> list[tuple[int, Outcome]]:
    """Run threads until the buffer is empty. Return the stored outcomes."""
    queues = HostQueues("Orders")
    stored: list[tuple[int, Outcome]] = []

    class Stores(Completer):
        def store(self, claimed: ClaimedMessage, outcome: Outcome) -> None:
            stored.append((claimed.seq, outcome))

    completer = Stores(
        connect=no_connection,
        queues=queues,
        buffer=buffer,
        on_scheduled=lambda delay: None,
        on_unblocked=lambda: None,
    )
    running = [
        DequeueThread(
            f"thread {number}",
            take=buffer.take,
            buffer=buffer,
            service=Handles(handle),
            completer=completer,
            connections=ThreadConnections(no_connection, queues),
        )
        for number in range(count)
    ]
    for thread in running:
        thread.start()
    buffer.close()
    assert all(thread.join(PATIENCE) for thread in running)
    return stored


def test_a_message_whose_service_raised_is_retried_with_backoff(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An immediate retry after a defect would keep the host and the MessageBox busy with one message."""
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    buffer = unpaused_buffer(10)
    for attempt in (0, 1, 5, 100):
        buffer.put([one._replace(attempt=attempt) for one in claimed(attempt)], 0)

    def fails(message: ClaimedMessage) -> Outcome:
        raise ZeroDivisionError("a defect")

    stored = dict(run_threads(1, buffer, fails))
    delays = {seq: outcome.delay for seq, outcome in stored.items() if isinstance(outcome, ScheduledRetry)}
    assert delays == {
        0: timedelta(seconds=1),
        1: timedelta(seconds=2),
        5: timedelta(seconds=32),
        100: timedelta(seconds=256),
    }
    assert {outcome.code for outcome in stored.values() if isinstance(outcome, ScheduledRetry)} == {"UNEXPECTED"}
    assert "a defect" in caplog.text


def test_a_slow_message_does_not_block_messages_while_another_thread_is_free() -> None:
    """The first message ends only when all other messages of its batch are done."""
    buffer = unpaused_buffer(100)
    buffer.put(claimed(*range(50)), 0)
    others, others_done = list(range(1, 50)), threading.Event()

    def handle(message: ClaimedMessage) -> Outcome:
        if message.seq == 0:
            return Disposition.COMPLETE if others_done.wait(PATIENCE) else Disposition.DISCARD
        others.remove(message.seq)
        if not others:
            others_done.set()
        return Disposition.COMPLETE

    stored = run_threads(2, buffer, handle)
    assert stored[-1] == (0, Disposition.COMPLETE)
    assert len(stored) == 50


@pytest.fixture(autouse=True)
def _forget_sizes() -> None:
    sizes.clear()


def test_a_batch_has_no_more_messages_than_its_service_takes() -> None:
    buffer = unpaused_buffer(100, batch_limit=5)
    buffer.put(claimed(*range(11)), 0)
    stored = dict(run_threads(1, buffer, lambda message: Disposition.COMPLETE))
    assert sizes == [5, 5, 1]
    assert stored == dict.fromkeys(range(11), Disposition.COMPLETE)


def test_each_message_of_a_batch_whose_service_raised_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    buffer = unpaused_buffer(100, batch_limit=5)
    buffer.put(claimed(*range(3)), 0)

    def fail(message: ClaimedMessage) -> Outcome:
        raise ZeroDivisionError("a defect")

    stored = dict(run_threads(1, buffer, fail))
    assert sizes == [3]
    assert [type(outcome) for outcome in stored.values()] == [ScheduledRetry] * 3
    assert "a defect" in caplog.text


def test_the_messages_after_a_failed_one_of_the_same_instance_are_released() -> None:
    buffer = unpaused_buffer(100)
    instance, claim_id = uuid.uuid4(), uuid.uuid4()
    buffer.put(
        [
            one._replace(instance_id=instance, claim_id=claim_id, task=QueueTask.DELIVER_IN_ORDER)
            for one in claimed(1, 2, 3)
        ],
        0,
    )
    failure = Suspension(code="NO", description="No.")
    outcomes = iter(list[Outcome]([Disposition.COMPLETE, failure]))
    stored = run_threads(1, buffer, lambda message: next(outcomes))
    assert stored == [(1, Disposition.COMPLETE), (2, failure), (3, Disposition.RELEASE)]
