"""A publisher pauses between its transactions while the load is above the thresholds (THR-05)."""

from __future__ import annotations

import time
import uuid

import pytest

from postroom import Throttling
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.messagebox.connection import connect
from postroom.messagebox.throttling.pace import MAX_WAIT, Pace
from tests.support.box import Box, interchange
from tests.support.host_settings import set_thresholds
from tests.support.simulated_load import set_load


@pytest.fixture
def durations(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of pauses, which advance the clock and take no time."""
    pauses: list[float] = []
    started = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: started + sum(pauses))
    return pauses


def test_a_publisher_waits_for_the_delay(box: Box, durations: list[float]) -> None:
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=4))
    set_load(box, queued=15)
    pace = Pace(box.connection, box.host().host_id, uuid.uuid4(), sleep=durations.append)
    assert pace()
    assert sum(durations) == pytest.approx(2)
    assert pace()
    assert sum(durations) == pytest.approx(4)


def test_a_publisher_stops_waiting_after_its_maximum_wait(box: Box, durations: list[float]) -> None:
    """The task ends, so that other work can use its core."""
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    set_load(box, queued=15)
    pace = Pace(box.connection, box.host().host_id, uuid.uuid4(), sleep=durations.append)
    assert not pace()
    assert sum(durations) == pytest.approx(MAX_WAIT)
    assert not pace()
    assert sum(durations) == pytest.approx(MAX_WAIT)
    set_load(box, queued=9)
    durations.append(1)
    assert pace()


def test_a_publisher_continues_as_soon_as_the_load_is_below_the_threshold(box: Box, durations: list[float]) -> None:
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    set_load(box, queued=15)

    def sleep(seconds: float) -> None:
        durations.append(seconds)
        if len(durations) == 3:
            set_load(box, queued=9)

    assert Pace(box.connection, box.host().host_id, uuid.uuid4(), sleep=sleep)()
    assert sum(durations) == pytest.approx(3)


def test_an_interchange_is_paced_between_its_transactions(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.add_port("Everything", "exists(Region)")
    location = box.add_location()
    monkeypatch.setattr("postroom.agent.streaming.interchange.CHUNK_ROWS", 10)
    monkeypatch.setattr("postroom.agent.streaming.receiver.CHUNK_ROWS", 10)
    published: list[int] = []
    with connect(box.url, user=box.host().role_name) as connection:
        body = b"\n".join(b'{"region": "EU"}' for _ in range(35))
        receiver = Receiver(connection, RoutingTable())

        def pace() -> bool:
            published.append(box.count("queued"))
            return True

        [received] = receiver.receive(location, [interchange(body)], pace=pace)
    assert (received.published, received.unfinished) == (35, False)
    assert published == [10, 20, 30]
