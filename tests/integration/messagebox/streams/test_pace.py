"""A publisher of many transactions waits between them while too much waits in the MessageBox (THR-05)."""

from __future__ import annotations

import time

import pytest

from postroom import Throttling
from postroom.agent.receiving.receiver import Receiver
from postroom.agent.routing.table import RoutingTable
from postroom.messagebox.connection import connect
from postroom.messagebox.streams.throttling import PATIENCE, Pace, store_thresholds
from tests.support.box import Box, interchange
from tests.support.load import set_load


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, which take no time."""
    pauses: list[float] = []
    started = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: started + sum(pauses))
    return pauses


def test_it_waits_for_the_delay_and_no_longer_than_that(box: Box, slept: list[float]) -> None:
    store_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=4))
    set_load(box, queued=15)
    pace = Pace(box.connection, box.host().host_id, sleep=slept.append)
    assert pace()
    assert sum(slept) == pytest.approx(2)
    assert pace()
    assert sum(slept) == pytest.approx(4)


def test_it_keeps_its_core_for_some_seconds_in_all(box: Box, slept: list[float]) -> None:
    """THR-04: others need the core to take messages away."""
    store_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    set_load(box, queued=15)
    pace = Pace(box.connection, box.host().host_id, sleep=slept.append)
    assert not pace()
    assert sum(slept) == pytest.approx(PATIENCE)
    assert not pace()
    assert sum(slept) == pytest.approx(PATIENCE)
    set_load(box, queued=9)
    slept.append(1)
    assert pace()


def test_it_goes_on_as_soon_as_there_is_less(box: Box, slept: list[float]) -> None:
    store_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    set_load(box, queued=15)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            set_load(box, queued=9)

    assert Pace(box.connection, box.host().host_id, sleep=sleep)()
    assert sum(slept) == pytest.approx(3)


def test_an_interchange_of_many_transactions_is_paced_between_them(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.add_port("Everything", "exists(Region)")
    location = box.add_location()
    monkeypatch.setattr("postroom.agent.receiving.chunks.CHUNK_ROWS", 10)
    monkeypatch.setattr("postroom.agent.receiving.receiver.CHUNK_ROWS", 10)
    published: list[int] = []
    with connect(box.url, user=box.host().role_name) as connection:
        body = b"\n".join(b'{"region": "EU"}' for _ in range(35))
        receiver = Receiver(connection, RoutingTable())

        def pace() -> bool:
            published.append(box.count("work_queue"))
            return True

        [received] = receiver.receive(location, [interchange(body)], pace=pace)
    assert (received.published, received.unfinished) == (35, False)
    assert published == [10, 20, 30]
