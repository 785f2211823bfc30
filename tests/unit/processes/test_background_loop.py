"""A background loop repeats its step, continues after a failure, and ends when it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from postroom.errors import MessageBoxUnavailable
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from tests.support.waiting import PATIENCE

LONG = 1000 * PATIENCE


@contextmanager
def running(step: Callable[[], float], backoff: Backoff | None = None) -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("test", step, backoff=backoff or Backoff(first=0.001, longest=0.001))
    loop.start()
    yield loop
    loop.stop()
    assert loop.join(PATIENCE)
    assert loop.stopping


def test_the_step_is_repeated_until_the_loop_is_stopped() -> None:
    steps: list[int] = []
    enough = threading.Event()

    def step() -> float:
        steps.append(len(steps))
        if len(steps) >= 3:
            enough.set()
        return 0.001

    with running(step):
        assert enough.wait(PATIENCE)


def test_a_failed_step_is_logged_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    went_well = threading.Event()
    failures: list[Exception] = [MessageBoxUnavailable("the server is away"), ZeroDivisionError("a defect")]

    def step() -> float:
        if failures:
            raise failures.pop(0)
        went_well.set()
        return LONG

    with running(step):
        assert went_well.wait(PATIENCE)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "the server is away" in caplog.text
    assert "ZeroDivisionError" in caplog.text, "with its traceback"


def test_a_wake_up_cuts_the_wait_short() -> None:
    steps: threading.Semaphore = threading.Semaphore(0)

    def step() -> float:
        steps.release()
        return LONG

    with running(step) as loop:
        for _ in range(3):
            assert steps.acquire(timeout=PATIENCE)
            loop.wake()


def test_a_wake_up_during_a_step_is_not_lost() -> None:
    started, woken, again = threading.Event(), threading.Event(), threading.Event()

    def step() -> float:
        if started.is_set():
            again.set()
        started.set()
        woken.wait()
        return LONG

    with running(step) as loop:
        assert started.wait(PATIENCE)
        loop.wake()
        woken.set()
        assert again.wait(PATIENCE)


def test_stop_ends_a_backoff() -> None:
    failed = threading.Event()

    def step() -> float:
        failed.set()
        raise ZeroDivisionError("a defect")

    with running(step, Backoff(first=LONG, longest=LONG)):
        assert failed.wait(PATIENCE)


def test_stop_interrupts_a_wait_inside_the_step() -> None:
    waiting, interrupted = threading.Event(), threading.Event()

    def step() -> float:
        waiting.set()
        interrupted.wait()
        return 0.0

    loop = BackgroundLoop("test", step, interrupt=interrupted.set)
    loop.start()
    assert waiting.wait(PATIENCE)
    loop.stop()
    assert loop.join(PATIENCE)


def test_an_error_that_comes_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[Exception | None] = [OSError("away"), OSError("away"), None, OSError("away"), OSError("gone")]
    done = threading.Event()

    def step() -> float:
        if not outcomes:
            done.set()
            return 60.0
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return 0.0

    loop = BackgroundLoop("poller", step, backoff=Backoff(first=0.001, longest=0.001))
    loop.start()
    assert done.wait(PATIENCE)
    loop.stop()
    loop.join()
    assert [record.getMessage() for record in caplog.records] == ["poller: away", "poller: away", "poller: gone"]


def test_a_failure_during_stop_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()

    def step() -> float:
        stop.wait()
        raise MessageBoxUnavailable("the connection was closed under it")

    loop = BackgroundLoop("test", step, interrupt=stop.set)
    loop.start()
    loop.stop()
    assert loop.join(PATIENCE)
    assert caplog.records == []


def test_a_loop_that_was_never_started_can_be_stopped() -> None:
    loop = BackgroundLoop("test", lambda: LONG)
    loop.stop()
    assert loop.join(PATIENCE)
