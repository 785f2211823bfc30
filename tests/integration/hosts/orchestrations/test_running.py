"""Host instances run orchestrations: they are activated, wait for correlated messages, send, and end."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.messagebox.check import check
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import apply_orchestrations, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

ECHO = """
@app.orchestration(activate=Kind == "order", host="Default")
async def echo(order: Message) -> None:
    await orchestrations.send(Message.of(b"echo " + order.data), to="Out")
"""

COLLECT = """
@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def collect(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.send(Message.of(b"ask"), to="Out")
    texts = [(await replies.receive()).data for _ in range(2)]
    await orchestrations.send(Message.of(b" ".join(texts)), to="Out")
"""


@pytest.fixture
def recorder() -> RecordingAdapter:
    return RecordingAdapter()


def sent(recorder: RecordingAdapter) -> list[bytes]:
    return sorted(one.body for one in recorder.sent)


def is_empty(box: Box) -> bool:
    return box.count("orchestration_instances") == 0 and box.count("instances") == 0


def test_a_message_activates_an_instance_that_sends_through_a_bound_port(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    start_host(recorder)
    publish(box, "order", "1", "2")
    wait_until(lambda: sent(recorder) == [b"echo 1", b"echo 2"], what="both messages sent")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert box.count("orchestration_journal") == box.count("orchestration_messages") == 0
    assert check(box.connection) == []


def test_correlated_messages_reach_the_waiting_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="a")
    publish(box, "order", "", key="b")
    wait_until(lambda: sent(recorder) == [b"ask"] * 2, what="two waiting instances")
    wait_until(lambda: box.count("orchestration_instances WHERE claim_id IS NULL") == 2, what="both released")
    assert box.count("subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL") == 2
    publish(box, "reply", "a1", key="a")
    publish(box, "reply", "b1", "b2", key="b")
    publish(box, "reply", "a2", key="a")
    wait_until(lambda: sent(recorder) == [b"a1 a2", b"ask", b"ask", b"b1 b2"], what="both answers")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []
