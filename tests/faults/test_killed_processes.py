"""Processes are killed with kill -9 while they work. Every order is delivered to the ports with a matching filter.

Every order is published exactly once. A send that was in progress at the kill may be repeated. The name of a file
contains the id of its message, so a repeated send writes the same file again, and an order that was published twice
would have two files. `make chaos` runs the same test with more orders and random times.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from postroom.files.private_folder import PARENT
from tests.support.chaos_installation import ChaosInstallation
from tests.support.installation import Installation
from tests.support.orders import APPLICATION, Orders
from tests.support.waiting import wait_until

COUNT = 8_000


@pytest.mark.sample("failing installation")
def test_every_order_is_published_once_and_delivered_to_the_matching_ports(home: Path) -> None:
    """The pipeline, a host and PostgreSQL are killed while they work. PostgreSQL is also shut down (ACC-34, DEQ-15).
    Then a batch is replayed whose messages are delivered and deleted (RCV-23)."""
    orders = Orders(COUNT)
    per_file = COUNT // 40
    files = list(orders.files(per_file=per_file))
    with Installation(home) as installation:
        up = installation.start("up", str(installation.write(APPLICATION)), "--master", "local[2]")
        chaos = ChaosInstallation(installation, up)

        def drop(some: slice) -> None:
            for name, content in files[some]:
                installation.drop_file(name, content)

        kept = chaos.keep_batch(files[:2], list(range(2 * per_file)))
        drop(slice(2, 10))
        wait_until(
            lambda: chaos.count_published() > 0 and chaos.count_delivered() > 0,
            what="the first published and delivered orders",
        )

        with chaos.block_publishing():
            drop(slice(10, 20))
            chaos.wait_for_publisher()
            killed = chaos.kill_pipeline()
            before, sent = chaos.count_published(), chaos.count_delivered()
        wait_until(lambda: chaos.find_pid("pipeline Main") != killed, what="a new pipeline process")
        wait_until(
            lambda: chaos.count_delivered() > sent and chaos.count_published() > before,
            what="more published and delivered orders",
        )

        with chaos.stop_host():
            drop(slice(20, 30))
            wait_until(lambda: chaos.count("queued") > 0, what="messages for the host")
        chaos.end_postgres(signal.SIGINT)
        wait_until(lambda: chaos.count_published() > COUNT // 2, what="half of the orders published")

        with chaos.block_publishing():
            drop(slice(30, 40))
            chaos.wait_for_publisher()
            chaos.end_postgres(signal.SIGKILL)

        chaos.wait_for_end(orders)
        chaos.replay(kept)
        chaos.verify(orders)
        last = chaos.find_pid("pipeline Main")
        assert up.stop() == 0, up.output()
    assert [pid for pid in (killed, last) if get_scratch_folder(pid).exists()] == []


def get_scratch_folder(pid: int) -> Path:
    return PARENT / f"postroom-{os.geteuid()}" / f"spark-{pid}"
