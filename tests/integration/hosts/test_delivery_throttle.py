"""The delivery of a host is throttled by memory, messages in process and override, and loses nothing (THR-02)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from postroom import Throttling
from postroom.hosts.host_instance import HostInstance
from postroom.message import Message
from postroom.operations.throttling import set_override
from postroom.throttling import OverrideMode
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.integration.hosts.test_metrics import read_metrics
from tests.support.box import Box, Region
from tests.support.host_settings import set_thresholds
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import wait_until


def publish(box: Box, count: int) -> None:
    box.agent().publish([Message.of(b"%d" % number, promoted={Region: "EU"}) for number in range(count)])


def read_reported(box: Box) -> Any:
    return next(one.throttles for one in box.host_instances() if one.dead_since is None)


def get_state(instance: HostInstance, direction: str = "delivery") -> float:
    return read_metrics(instance)["postroom_throttle_state", direction, "Default"]


def test_no_more_than_the_limit_is_in_process_and_everything_is_delivered(box: Box, start_host: StartHost) -> None:
    """THR-07: the limit is per processor."""
    box.add_port("Slow", "exists(Region)")
    set_thresholds(box.connection, box.host().host_id, Throttling(in_process=10))
    publish(box, 500)
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    wait_until(lambda: read_reported(box).get("delivery"), what="a throttled delivery")
    assert get_state(instance) == 3
    reported = read_reported(box)["delivery"]
    threshold = 10 * (os.cpu_count() or 1)
    assert reported["reason"].endswith(f"messages are in process; the threshold is {threshold}")
    # A claim takes at most half of the memory queue.
    assert box.count("claimed") <= threshold + SETTINGS.memory_queue
    blocked.released.set()
    wait_until(lambda: len(recorder.sent) == 500, what="all messages delivered")
    wait_until(lambda: read_reported(box) == {}, what="an end of the throttling")
    assert get_state(instance) == 0


def test_memory_throttles_delivery_and_publishing_of_the_process(
    box: Box, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.add_port("Any", "exists(Region)")
    set_thresholds(box.connection, box.host().host_id, Throttling(process_memory=0.0001, longest_delay=0.1))
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: read_reported(box).keys() == {"delivery", "publishing"}, what="a throttled process")
    assert (get_state(instance), get_state(instance, "publishing")) == (4, 4)
    publish(box, 5)
    wait_until(lambda: len(recorder.sent) == 5, what="slow deliveries")


def test_an_operator_throttles_the_delivery_of_a_running_host(box: Box, start_host: StartHost) -> None:
    box.add_port("Any", "exists(Region)")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    set_override(box.connection, "Default", delivery=OverrideMode.ALWAYS, severity=1_000)
    wait_until(lambda: get_state(instance) == 10, what="an override in the running host")
    wait_until(lambda: read_reported(box).get("delivery"), what="an override that is visible")
    publish(box, 50)
    set_override(box.connection, "Default", delivery=OverrideMode.NEVER)
    wait_until(lambda: len(recorder.sent) == 50, what="all messages delivered")
    assert get_state(instance) == 0
