"""The parts of a host instance share what is large."""

from __future__ import annotations

import gc
from contextlib import closing

from postroom.agent.routing.table import RoutingTable
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.outbox import Outbox, add_polled_location
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until


def list_tables() -> set[int]:
    return {id(one) for one in gc.get_objects() if isinstance(one, RoutingTable)}


def test_a_host_instance_has_one_routing_table(box: Box, start_host: StartHost) -> None:
    """Requests, responses, resumed messages, polled locations and the threads of orchestrations share it."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    outbox = Outbox(box.url)
    with closing(outbox.connection):
        add_polled_location(box, outbox.definition)
        outbox.put(b'{"region": "EU", "total": 12.5}')
        before = list_tables()
        recorder = RecordingAdapter()
        start_host(recorder)
        wait_until(lambda: recorder.sent)
        assert len(list_tables() - before) == 1
