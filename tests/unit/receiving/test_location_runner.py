"""A runner keeps what runs equal to what is configured."""

from __future__ import annotations

import threading
import time

import pytest

from postroom.receiving.location_runner import LocationRunner, Running


class Started(Running):
    """Something that stops at once, unless it is held."""

    def __init__(self, definition: str) -> None:
        if definition == "broken":
            raise ValueError("There is\nno such adapter.")
        self.definition = definition
        self.may_end = threading.Event()
        if definition != "held":
            self.may_end.set()

    def stop(self) -> None:
        self.may_end.wait()


def list_running(runner: LocationRunner[str, Started]) -> dict[str, str]:
    return {name: running.definition for name, running in runner.running.items()}


def test_what_is_new_is_started_what_has_changed_restarted_and_what_is_gone_stopped() -> None:
    stopped: list[Started] = []
    runner = LocationRunner(Started, stop_seconds=60.0, on_stopped=stopped.append)
    assert runner.apply({"a": "1", "b": "1", "c": "1"})
    before = dict(runner.running)
    assert runner.apply({"a": "1", "b": "2", "d": "1"})
    assert list_running(runner) == {"a": "1", "b": "2", "d": "1"}
    assert runner.running["a"] is before["a"]
    assert stopped == [before["b"], before["c"]]


def test_what_cannot_be_started_is_a_problem_until_it_can_be_or_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    runner = LocationRunner(Started)
    for _ in range(2):
        assert not runner.apply({"a": "1", "b": "broken", "c": "broken"})
    assert list_running(runner) == {"a": "1"}
    reported = [f"{name} cannot be started: There is no such adapter." for name in ("b", "c")]
    assert list(runner.problems.values()) == caplog.messages == reported
    assert runner.apply({"a": "1", "b": "2"})
    assert runner.problems == {}


def test_what_has_changed_is_started_when_it_has_stopped() -> None:
    runner = LocationRunner(Started, finish_within=60.0)
    runner.apply({"a": "held", "b": "1"})
    old = runner.running["a"]
    assert not runner.apply({"a": "2", "b": "1"})
    assert list_running(runner) == {"b": "1"}
    assert old.finish_by > time.monotonic()
    old.may_end.set()
    runner.join()
    assert runner.apply({"a": "2", "b": "1"})
    assert list_running(runner) == {"b": "1", "a": "2"}


def test_stop_shortens_the_time_of_what_is_already_stopping() -> None:
    runner = LocationRunner(Started, finish_within=60.0)
    runner.apply({"a": "held"})
    old = runner.running["a"]
    runner.apply({})
    runner.stop(within=0.0)
    assert old.finish_by <= time.monotonic()
    runner.join(timeout=0.0)
    assert list(runner.stopping) == ["a"]
    old.may_end.set()
    runner.join()
    assert not runner.stopping
