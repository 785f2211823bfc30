"""A batch with many matches is published in pieces, with the same result as in one piece."""

from __future__ import annotations

import tracemalloc

import pytest

from postroom.agent.routing import batch_matches
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.filters import index
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from tests.support.box import Box, interchange

EU, US, MARS = b'{"region": "EU"}\n', b'{"region": "US"}\n', b'{"region": "MARS"}\n'


def limit_pieces(monkeypatch: pytest.MonkeyPatch, matches: int) -> None:
    for module in (index, batch_matches):
        monkeypatch.setattr(module, "MATCHES_PER_PIECE", matches)


@pytest.mark.parametrize("matches", [1, 3, 7, 1_000])
def test_a_batch_in_pieces_has_the_same_queue_rows(box: Box, monkeypatch: pytest.MonkeyPatch, matches: int) -> None:
    limit_pieces(monkeypatch, matches)
    location = box.add_location()
    box.add_host("Other")
    for number in range(3):
        box.add_port(f"Europe{number}", "Region == 'EU'")
    box.add_port("Elsewhere", "Region == 'EU'", host="Other")
    box.add_port("America", "Region == 'US'")
    box.add_port("Stopped", "Region == 'US'", state="stopped")
    first, second = box.receive(location, (EU + US) * 5 + MARS, EU + MARS * 2)
    assert (first.published, first.suspended, second.published, second.suspended) == (10, 1, 1, 2)
    assert box.queued() == {"Europe0": 6, "Europe1": 6, "Europe2": 6, "Elsewhere": 6, "America": 5}
    assert sorted(box.suspended()) == [("PORT_STOPPED", True)] * 5 + [("ROUTING", False)] * 2 + [("ROUTING", True)] * 3
    assert len({row.instance_id for row in box.instances()}) == len(box.instances())
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


def test_the_memory_of_a_publish_does_not_grow_with_the_matches(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_pieces(monkeypatch, 5_000)
    location = box.add_location()
    ports, documents = 200, 500
    for number in range(ports):
        box.add_port(f"Port{number}", "exists(Region)")
    with connect(box.url, user=box.host().role_name) as connection:
        receiver = Receiver(connection, RoutingTable())
        receiver.receive(location, [interchange(EU)])
        whole = interchange(EU * documents)
        tracemalloc.start()
        try:
            [received] = receiver.receive(location, [whole])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert received.published == documents
    assert box.count("queued") == ports * (documents + 1)
    # The queue rows of all 100,000 matches together need 20 MB.
    assert peak < 8 << 20
