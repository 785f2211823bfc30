"""The result of a step is the same before and after a replay from the MessageBox."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.hosts.orchestrations import runner
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import apply_orchestrations, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

CODE = r"""
from collections import namedtuple
from enum import IntEnum

Point = namedtuple("Point", "x y")
Level = IntEnum("Level", ["LOW", "HIGH"])


def compute() -> object:
    return {"b": 1e22, "a": [Point(1, 2.0), -0.0, 5e-324], "level": Level.HIGH, "text": "\0 \ud800 é"}


@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def keep(order: Message) -> None:
    replies = Replies.of(order)
    value = await orchestrations.step(compute)
    await orchestrations.send(Message.of(ascii(value).encode()), to="Out")
    await replies.receive()
    await orchestrations.send(Message.of(ascii(value).encode()), to="Out")
"""


def test_a_replay_gets_the_same_numbers_texts_and_order_of_keys(
    box: Box, tmp_path: Path, start_host: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_LIVE", 0)
    apply_orchestrations(box, tmp_path, CODE)
    recorder = RecordingAdapter()
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: len(recorder.sent) == 1, what="the value before the replay")
    publish(box, "reply", "")
    wait_until(lambda: len(recorder.sent) == 2, what="the value after the replay")
    expected = r"{'b': 1e+22, 'a': [(1, 2.0), -0.0, 5e-324], 'level': 2, 'text': '\x00 \ud800 \xe9'}"
    assert [one.body.decode() for one in recorder.sent] == [expected] * 2
