"""The deadline of an HTTP exchange."""

from __future__ import annotations

import time

import pytest

from postroom.adapters.http.exchange import Deadline, RequestBody
from postroom.conformance.send_adapters import ChunkedBody
from postroom.message import Part


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    return clock


def test_the_remaining_time_ends_at_the_deadline(clock: FakeClock) -> None:
    deadline = Deadline(10)
    clock.now += 4
    assert deadline.get_remaining() == 6
    deadline.shorten(1)
    deadline.shorten(5)
    assert deadline.get_remaining() == 1
    clock.now += 1
    with pytest.raises(TimeoutError):
        deadline.get_remaining()


def test_the_deadline_starts_again_after_each_mebibyte_of_the_body(clock: FakeClock) -> None:
    deadline = Deadline(10)
    body = RequestBody(Part(body=ChunkedBody((bytes(3 << 20),))), deadline)
    remaining = []
    for piece in body:
        remaining.append(deadline.get_remaining())
        clock.now += len(piece) / (1 << 20) * 8
    assert body.is_sent
    assert min(remaining) > 2
    assert remaining.count(10) == 3


def test_the_deadline_does_not_start_again_for_small_pieces(clock: FakeClock) -> None:
    deadline = Deadline(100)
    for _ in RequestBody(Part(body=ChunkedBody((b"x",) * 100)), deadline):
        clock.now += 1
    with pytest.raises(TimeoutError):
        deadline.get_remaining()
