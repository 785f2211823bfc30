"""Operators suspend and terminate instances while hosts claim their messages (INS-08, 09)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region
from tests.support.publishers import is_waiting_for_lock
from tests.support.waiting import wait_until


@pytest.fixture
def operator(box: Box) -> Iterator[Connection]:
    with connect(box.url) as connection:
        yield connection


@pytest.mark.parametrize("operation", ["suspend_instances", "terminate_instances"])
def test_operators_skip_an_instance_that_is_being_claimed(
    box: Box, host: Connection, operator: Connection, operation: str
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"", promoted={Region: "EU"})])
    with ThreadPoolExecutor() as pool:
        with host.transaction():
            [claimed] = HostQueues("Default").dequeue(
                host,
                claim_id=uuid.uuid4(),
                host_instance=1,
                service_class=ServiceClass.MESSAGING_IN_PROCESS,
                limit=1,
            )
            operation_result = pool.submit(
                lambda: operator.execute(f"SELECT * FROM {operation}(%s)", ([claimed.instance_id],)).fetchall()
            )
            wait_until(lambda: is_waiting_for_lock(box, operator), what="the operator to wait for the claim")
        assert operation_result.result(30) == []
    assert (box.count("queued"), box.count("suspended")) == (1, 0)
