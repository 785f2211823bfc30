"""A runner keeps what runs equal to what is configured."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from postroom.receiving.location_runner import LocationRunner, Running


@dataclass(frozen=True)
class Defined:
    """A definition. Its name may change."""

    value: str
    name: str = "drop"


class Started(Running):
    """Something that stops at once, unless it is held."""

    def __init__(self, defined: Defined) -> None:
        definition = self.definition = defined.value
        if definition == "broken":
            raise ValueError("There is\nno such adapter.")
        self.may_end = threading.Event()
        if definition != "held":
            self.may_end.set()

    def stop(self) -> None:
        self.may_end.wait()


def define(**definitions: str) -> dict[Hashable, Defined]:
    return {key: Defined(value) for key, value in definitions.items()}


def list_running(runner: LocationRunner[Defined, Started]) -> dict[Hashable, str]:
    return {key: running.definition for key, running in runner.running.items()}


def test_what_is_new_is_started_what_has_changed_restarted_and_what_is_gone_stopped() -> None:
    stopped: list[Started] = []
    runner = LocationRunner(Started, stop_seconds=60.0, on_stopped=stopped.append)
    assert runner.apply(define(a="1", b="1", c="1"))
    before = dict(runner.running)
    assert runner.apply(define(a="1", b="2", d="1"))
    assert list_running(runner) == {"a": "1", "b": "2", "d": "1"}
    assert runner.running["a"] is before["a"]
    assert stopped == [before["b"], before["c"]]


def test_what_cannot_be_started_is_a_problem_until_it_can_be_or_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    runner = LocationRunner(Started)
    for _ in range(2):
        assert not runner.apply(define(a="1", b="broken", c="broken"))
    assert list_running(runner) == {"a": "1"}
    reported = ["drop cannot be started: There is no such adapter."] * 2
    assert list(runner.problems.values()) == caplog.messages == reported
    assert runner.apply(define(a="1", b="2"))
    assert runner.problems == {}


def test_what_has_changed_is_started_when_it_has_stopped() -> None:
    runner = LocationRunner(Started, finish_within=60.0)
    runner.apply(define(a="held", b="1"))
    old = runner.running["a"]
    renamed = {**define(b="1"), "a": Defined("2", name="renamed")}
    assert not runner.apply(renamed), "two of one location never run together, also if its name has changed"
    assert list_running(runner) == {"b": "1"}
    assert old.finish_by > time.monotonic()
    old.may_end.set()
    runner.join()
    assert runner.apply(renamed)
    assert list_running(runner) == {"b": "1", "a": "2"}


def test_stop_shortens_the_time_of_what_is_already_stopping() -> None:
    runner = LocationRunner(Started, finish_within=60.0)
    runner.apply(define(a="held"))
    old = runner.running["a"]
    runner.apply({})
    runner.stop(within=0.0)
    assert old.finish_by <= time.monotonic()
    runner.join(timeout=0.0)
    assert list(runner.stopping) == ["a"]
    old.may_end.set()
    runner.join()
    assert not runner.stopping
