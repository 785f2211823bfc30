"""Calls that take too long are abandoned with their threads. All other threads are used again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from weakref import WeakSet

import pytest

from postroom.errors import PipelineFailure
from postroom.processes.time_limit import (
    TimedCall,
    TimedOut,
    TimeLimit,
    call_each_with_timeout,
    count_abandoned_threads,
)
from tests.support.waiting import wait_until

LINES = b'{"region": "EU"}\n' * 5_000


def test_all_steps_of_an_iterator_and_the_next_iterator_run_on_one_thread() -> None:
    time_limit = TimeLimit(60)
    seen: set[int] = set()

    def steps() -> Iterator[int]:
        for number in range(3):
            seen.add(threading.get_ident())
            yield number

    for _ in range(3):
        assert list(time_limit.iterate(steps)) == [0, 1, 2]
    assert len(seen) == 1
    assert threading.get_ident() not in seen


def test_an_unfinished_iterator_is_closed_on_its_thread() -> None:
    closed: list[int] = []

    def steps() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(threading.get_ident())

    time_limit = TimeLimit(60)
    started = time_limit.iterate(steps)
    assert next(started) == 0
    started.close()  # type: ignore[attr-defined]
    assert list(time_limit.iterate(lambda: iter([1]))) == [1]
    assert len(closed) == 1
    assert closed != [threading.get_ident()]


def test_abandoned_threads_are_counted_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    own: WeakSet[threading.Thread] = WeakSet()  # those of other tests may be about to end
    monkeypatch.setattr("postroom.processes.time_limit._abandoned_threads", lambda: own)
    released = threading.Event()
    time_limit = TimeLimit(0.05)

    def steps() -> Iterator[bool]:
        yield time_limit.call("Stuck", lambda: released.wait(60))

    with pytest.raises(PipelineFailure, match="Stuck"):
        list(time_limit.iterate(steps))
    assert count_abandoned_threads() == 1
    released.set()
    wait_until(lambda: count_abandoned_threads() == 0, what="the end of the thread")


def test_each_call_has_its_own_time_limit_and_a_timeout_does_not_affect_the_others() -> None:
    released = threading.Event()

    def fail() -> str:
        raise SystemExit("not the process")

    calls = [
        TimedCall(seconds=60, function=lambda: "first"),
        TimedCall(seconds=0.05, function=lambda: str(released.wait(60))),
        TimedCall(seconds=60, function=fail),
        TimedCall(seconds=60, function=lambda: "last"),
    ]
    first, late, failed, last = call_each_with_timeout(calls)
    released.set()
    assert (first, last) == ("first", "last")
    assert isinstance(late, TimedOut)
    assert isinstance(failed, SystemExit)
    assert call_each_with_timeout([]) == []


def test_calls_run_one_after_the_other_on_one_thread() -> None:
    calls = [TimedCall(seconds=60, function=threading.get_ident) for _ in range(5)]
    seen = set(call_each_with_timeout(calls)) | set(call_each_with_timeout(calls))
    assert len(seen) == 1
    assert threading.get_ident() not in seen
