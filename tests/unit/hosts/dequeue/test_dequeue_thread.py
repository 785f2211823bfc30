"""A thread hands over one message after the other, and survives what a service does to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NoReturn

import pytest

from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.dequeue_thread import DequeueThread
from postroom.hosts.dequeue.outcomes import Outcome, Verdict
from postroom.hosts.dequeue.thread_connections import ThreadConnections
from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage, HostQueues, Retry
from tests.support.waiting import PATIENCE
from tests.unit.hosts.dequeue.test_work_in_hand import claimed, opened


class Handles:
    """A service that does what the test says."""

    def __init__(self, handle: Callable[[ClaimedMessage], Outcome]) -> None:
        self._handle = handle

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None: ...

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        return self._handle(claimed)

    def close(self) -> None: ...


def no_connection() -> NoReturn:
    raise AssertionError("nothing of this needs a connection")


def threads(count: int, work: WorkInHand, handle: Callable[[ClaimedMessage], Outcome]) -> list[tuple[int, Outcome]]:
    """Runs threads over what is in hand, to its end; what was stored."""
    queues = HostQueues("Orders")
    stored: list[tuple[int, Outcome]] = []

    class Stores(Completer):
        def store(self, claimed: ClaimedMessage, outcome: Outcome) -> None:
            stored.append((claimed.seq, outcome))

    completer = Stores(connect=no_connection, queues=queues, work=work, scheduled=lambda delay: None)
    running = [
        DequeueThread(
            f"thread {number}",
            work=work,
            service=Handles(handle),
            completer=completer,
            connections=ThreadConnections(no_connection, queues),
        )
        for number in range(count)
    ]
    for thread in running:
        thread.start()
    work.end()
    assert all(thread.join(PATIENCE) for thread in running)
    return stored


def test_a_message_whose_service_raised_is_retried_with_backoff(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: a defect would keep the host and the MessageBox busy with one message."""
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    work = opened(10)
    for attempt in (0, 1, 5, 100):
        work.put([one._replace(attempt=attempt) for one in claimed(attempt)], 0)

    def fails(message: ClaimedMessage) -> Outcome:
        raise ZeroDivisionError("a defect")

    stored = dict(threads(1, work, fails))
    delays = {seq: outcome.delay for seq, outcome in stored.items() if isinstance(outcome, Retry)}
    assert delays == {
        0: timedelta(seconds=1),
        1: timedelta(seconds=2),
        5: timedelta(seconds=32),
        100: timedelta(seconds=256),
    }
    assert {outcome.code for outcome in stored.values() if isinstance(outcome, Retry)} == {"UNEXPECTED"}
    assert "a defect" in caplog.text


def test_nothing_waits_behind_a_slow_message_while_another_thread_is_free() -> None:
    """The first message ends only when all the others, which came with it, are done."""
    work = opened(100)
    work.put(claimed(*range(50)), 0)
    others, others_done = list(range(1, 50)), threading.Event()

    def handle(message: ClaimedMessage) -> Outcome:
        if message.seq == 0:
            return Verdict.COMPLETE if others_done.wait(PATIENCE) else Verdict.DISCARD
        others.remove(message.seq)
        if not others:
            others_done.set()
        return Verdict.COMPLETE

    stored = threads(2, work, handle)
    assert stored[-1] == (0, Verdict.COMPLETE)
    assert len(stored) == 50
