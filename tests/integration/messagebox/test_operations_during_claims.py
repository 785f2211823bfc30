"""INS-05: operators suspend and terminate instances while hosts claim their messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region
from tests.support.changes import suspend, terminate
from tests.support.publishers import is_waiting_for_lock
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture
def operator(box: Box) -> Iterator[Connection]:
    with connect(box.url) as connection:
        yield connection


@pytest.mark.parametrize("change", [suspend, terminate])
def test_an_instance_that_is_being_claimed_is_changed_after_its_attempt(
    box: Box, host: Connection, operator: Connection, change: Callable[[Connection, uuid.UUID], bool]
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"", promoted={Region: "EU"})])
    queues, claim_id = HostQueues("Default"), uuid.uuid4()
    with ThreadPoolExecutor() as pool:
        with host.transaction():
            [claimed] = queues.dequeue(
                host, claim_id=claim_id, host_instance=1, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=1
            )
            is_changed = pool.submit(change, operator, claimed.instance_id)
            wait_until(lambda: is_waiting_for_lock(box, operator), what="the operator to wait for the claim")
        assert not is_changed.result(PATIENCE)
    assert (box.count("queued"), box.count("suspended")) == (1, 0)
    queues.release(host, claim_id, [claimed.seq])
    run_all_jobs_once(box.connection)
    assert (box.count("queued"), box.count("suspended")) == (0, int(change is suspend))
