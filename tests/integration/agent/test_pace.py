"""A publisher of many transactions waits between them while too much waits in the MessageBox (THR-05)."""

from __future__ import annotations

import time

import pytest

from postroom import Throttling
from postroom.agent.receiving import Receiver
from postroom.agent.routing import RoutingTable
from postroom.messagebox.connection import connect
from postroom.messagebox.throttling import Pace, store_thresholds
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
    store_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=7))
    set_load(box, queued=15)
    pace = Pace(box.connection, box.host().host_id, slept.append)
    pace()
    assert sum(slept) == pytest.approx(3.5)
    pace()
    assert sum(slept) == pytest.approx(7)


def test_it_goes_on_as_soon_as_there_is_less(box: Box, slept: list[float]) -> None:
    store_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    set_load(box, queued=15)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            set_load(box, queued=9)

    Pace(box.connection, box.host().host_id, sleep)()
    assert sum(slept) == pytest.approx(3)


def test_an_interchange_of_many_transactions_is_paced_between_them(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.add_port("Everything", "exists(Region)")
    location = box.add_location()
    monkeypatch.setattr("postroom.agent.chunks.CHUNK_ROWS", 10)
    monkeypatch.setattr("postroom.agent.receiving.CHUNK_ROWS", 10)
    published: list[int] = []
    with connect(box.url, user=box.host().role_name) as connection:
        body = b"\n".join(b'{"region": "EU"}' for _ in range(35))
        receiver = Receiver(connection, RoutingTable())
        [received] = receiver.receive(
            location, [interchange(body)], pace=lambda: published.append(box.count("work_queue"))
        )
    assert received.published == 35
    assert published == [10, 20, 30]
