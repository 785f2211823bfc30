"""Throttling reaches orchestrations: the delivery of messages to them, and what they publish (THR-02, THR-08)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from postroom import Throttling
from postroom.hosts.dequeue.poller import is_held_back
from postroom.messagebox.maintenance.check import check
from postroom.operations.throttling import list_throttling, set_override
from postroom.throttling import OverrideMode
from postroom.throttling.states import Throttle
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.test_metrics import read_metrics
from tests.support.box import Box
from tests.support.host_settings import set_thresholds
from tests.support.orchestrations import ECHO, apply_orchestrations, has_ended, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

#: Sends after a step that waits until a file exists.
BLOCKED = """
def wait(file: str) -> None:
    import pathlib, time
    while not pathlib.Path(file).exists():
        time.sleep(0.01)

@app.orchestration(activate=Kind == "order", host="Default")
async def blocked(order: Message) -> None:
    await orchestrations.step(wait, {file!r})
    await orchestrations.send(Message.of(b"done"), to="Out")
"""

#: Receives without an orchestration.
DIRECT = """
app.send_port("Direct", adapters.Null(), filter=Kind == "direct", host="Default")
"""


def set_throttling(box: Box, **thresholds: Any) -> None:
    set_thresholds(box.connection, box.host().host_id, Throttling(**thresholds))


def find_states(box: Box, direction: str) -> set[int]:
    return {one.state for one in list_throttling(box.connection) if one.direction == direction}


def test_delivery_to_orchestrations_stops_above_the_limit_and_resumes_below(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """THR-07."""
    held_back: list[bool] = []

    def record(throttle: Throttle | None, claimed_at: float) -> bool:
        held_back.append(is_held_back(throttle, claimed_at))
        return held_back[-1]

    monkeypatch.setattr("postroom.hosts.orchestrations.poller.is_held_back", record)
    gate = tmp_path / "open"
    apply_orchestrations(box, tmp_path, BLOCKED.replace("{file!r}", repr(str(gate))))
    set_throttling(box, in_process=5)
    count = 5 * (os.cpu_count() or 1) + 1
    publish(box, "order", *("one",) * count)
    instance = start_host(recorder)
    wait_until(lambda: 3 in find_states(box, "delivery"), what="messages of orchestrations in process")
    assert read_metrics(instance)["postroom_throttle_state", "delivery", "Default"] == 3
    publish(box, "order", *("two",) * count)
    held_back.clear()
    wait_until(lambda: len(held_back) >= 5)
    assert all(held_back)
    assert instance.orchestrations is not None
    assert instance.orchestrations.claimed_count == count
    gate.touch()
    wait_until(lambda: has_ended(box))
    assert len(recorder.sent) == 2 * count
    wait_until(lambda: find_states(box, "delivery") == {0} or not find_states(box, "delivery"))
    assert check(box.connection) == []


def test_an_operator_throttles_the_delivery_to_orchestrations(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """THR-08."""
    apply_orchestrations(box, tmp_path, ECHO)
    set_throttling(box, longest_delay=0.5)
    set_override(box.connection, "Default", delivery=OverrideMode.ALWAYS, severity=1_000)
    publish(box, "order", *"123456")
    started = time.monotonic()
    start_host(recorder)
    wait_until(lambda: len(recorder.sent) == 6)
    assert time.monotonic() - started > 2.5, "each claim takes one instance, half a second after the last one"
    assert 10 in find_states(box, "delivery")
    assert sent(recorder) == [b"echo %d" % number for number in range(1, 7)]


def test_an_operator_throttles_what_orchestrations_publish(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """THR-08. An instance that waits to publish occupies no thread, and continues when the throttling ends."""
    apply_orchestrations(box, tmp_path, ECHO)
    instance = start_host(recorder)
    set_override(box.connection, "Default", publishing=OverrideMode.ALWAYS, severity=1_000)
    publish(box, "order", *"1234567")
    assert instance.orchestrations is not None
    work = instance.orchestrations._work
    wait_until(lambda: len(work._later) == 7 and work.waiting_threads == 5, what="instances that wait to publish")
    assert recorder.sent == []
    assert 11 in find_states(box, "publishing")
    wait_until(lambda: instance.orchestrations is not None and instance.orchestrations.unfinished_count == 0)
    set_override(box.connection, "Default", publishing=OverrideMode.AUTO)
    wait_until(lambda: has_ended(box))
    assert sent(recorder) == [b"echo %d" % number for number in range(1, 8)]


def test_instances_that_wait_to_publish_do_not_stop_the_send_ports_of_their_host(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """THR-07, THR-09. They wait until the backlog is smaller, which only the send ports can make smaller."""
    apply_orchestrations(box, tmp_path, ECHO + DIRECT)
    set_throttling(box, in_process=1)
    instance = start_host(recorder)
    set_override(box.connection, "Default", publishing=OverrideMode.ALWAYS, severity=1_000)
    count = 2 * (os.cpu_count() or 1)
    publish(box, "order", *("one",) * count)
    assert instance.orchestrations is not None
    work = instance.orchestrations._work
    wait_until(lambda: work.later_count == count, what="instances that wait to publish")
    publish(box, "direct", "direct")
    wait_until(lambda: sent(recorder) == [b"direct"])
    set_override(box.connection, "Default", publishing=OverrideMode.AUTO)
    wait_until(lambda: has_ended(box))


def test_an_instance_publishes_after_the_delay_while_the_throttling_lasts(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """THR-05."""
    apply_orchestrations(box, tmp_path, ECHO)
    set_throttling(box, longest_delay=1.5)
    set_override(box.connection, "Default", publishing=OverrideMode.ALWAYS, severity=1_000)
    start_host(recorder)
    started = time.monotonic()
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"echo 1"])
    assert time.monotonic() - started > 1.5


def test_an_instance_that_waits_to_publish_continues_on_another_host_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    first = start_host(recorder)
    set_override(box.connection, "Default", publishing=OverrideMode.ALWAYS, severity=1_000)
    publish(box, "order", "1", "2")
    assert first.orchestrations is not None
    work = first.orchestrations._work
    wait_until(lambda: len(work._later) == 2)
    first.stop()
    assert recorder.sent == []
    set_override(box.connection, "Default", publishing=OverrideMode.NEVER)
    start_host(recorder)
    wait_until(lambda: has_ended(box))
    assert sent(recorder) == [b"echo 1", b"echo 2"]


def test_answers_to_callers_are_not_throttled_by_the_publishing(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """THR-09. The MessageBox has too many messages, and an instance that publishes no more than it consumes continues:
    the backlog may be its own."""
    apply_orchestrations(box, tmp_path, ECHO)
    publish(box, "order", *"123")
    set_throttling(box, messages=1)
    start_host(recorder)
    wait_until(lambda: has_ended(box))
    assert sent(recorder) == [b"echo 1", b"echo 2", b"echo 3"]
