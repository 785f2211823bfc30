"""A loop goes on after a failure, and stops when it is told to."""

from __future__ import annotations

import threading

import psycopg
import pytest

from postroom.hosts.loop import Loop
from tests.support.waiting import PATIENCE, wait_until


def test_it_repeats_its_step_until_it_is_stopped() -> None:
    steps: list[int] = []
    enough = threading.Event()

    def step() -> None:
        steps.append(len(steps))
        if len(steps) >= 3:
            enough.set()
            threading.Event().wait(0.001)

    loop = Loop("test", step)
    loop.start()
    assert enough.wait(PATIENCE)
    loop.stop()
    assert loop.join(PATIENCE)
    assert loop.stopping


def test_a_failure_is_said_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    went_well = threading.Event()
    failures: list[Exception] = [psycopg.OperationalError("the server is away"), ZeroDivisionError("a defect")]

    def step() -> None:
        if failures:
            raise failures.pop(0)
        went_well.set()
        threading.Event().wait(0.001)

    loop = Loop("test", step)
    loop.start()
    assert went_well.wait(PATIENCE)
    loop.stop()
    assert loop.join(PATIENCE)
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "the server is away" in caplog.text
    assert "ZeroDivisionError" in caplog.text, "with its traceback"


def test_stopping_interrupts_what_the_step_waits_for() -> None:
    waiting, interrupted = threading.Event(), threading.Event()

    def step() -> None:
        waiting.set()
        interrupted.wait()

    loop = Loop("test", step, interrupt=interrupted.set)
    loop.start()
    assert waiting.wait(PATIENCE)
    loop.stop()
    assert loop.join(PATIENCE)


def test_a_failure_while_it_stops_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()

    def step() -> None:
        stop.wait()
        raise psycopg.OperationalError("the connection was closed under it")

    loop = Loop("test", step, interrupt=stop.set)
    loop.start()
    loop.stop()
    wait_until(lambda: loop.join(PATIENCE))
    assert caplog.records == []
