"""Killed with -9 in the middle of the work, restarted, and every order is where it belongs.

Published exactly once; delivered to exactly the ports whose filter it meets. A send that was under way at the kill may
be repeated; a file is named after its message, so that a repeated send gives the same file again, and an order that was
published twice gives two. `make chaos` does the same to more orders, at random moments.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from postroom.private_folder import PARENT
from tests.support.chaos_installation import ChaosInstallation
from tests.support.installation import Installation
from tests.support.orders import APPLICATION, Orders
from tests.support.waiting import wait_until

COUNT = 8_000


def test_every_order_is_where_it_belongs(home: Path) -> None:
    """The pipeline, a host and PostgreSQL, one after the other, each while it has work; PostgreSQL in good order and in
    a crash (ACC-34). Then a batch comes again that was delivered and cleaned up (RCV-23)."""
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
        wait_until(lambda: chaos.published() > 0 and chaos.delivered() > 0, what="the first orders on their way")

        with chaos.nothing_published():
            drop(slice(10, 20))
            chaos.wait_for_publisher()
            killed = chaos.kill_pipeline()
            before, sent = chaos.published(), chaos.delivered()
        wait_until(lambda: chaos.pid_of("pipeline Main") != killed, what="another pipeline process")
        wait_until(lambda: chaos.delivered() > sent and chaos.published() > before, what="the next orders")

        with chaos.host_stopped():
            drop(slice(20, 30))
            waiting = "SELECT count(*) FROM messagebox.work_queue"
            wait_until(lambda: chaos.ask(waiting) > 0, what="work for the host")
        chaos.end_postgres(signal.SIGINT)
        wait_until(lambda: chaos.published() > COUNT // 2, what="the second half on its way")

        with chaos.nothing_published():
            drop(slice(30, 40))
            chaos.wait_for_publisher()
            chaos.end_postgres(signal.SIGKILL)

        chaos.wait_for_end(orders)
        chaos.bring_again(kept)
        chaos.verify(orders)
        last = chaos.pid_of("pipeline Main")
        assert up.stop() == 0, up.output()
    assert [pid for pid in (killed, last) if scratch_of(pid).exists()] == []


def scratch_of(pid: int) -> Path:
    return PARENT / f"postroom-{os.geteuid()}" / f"spark-{pid}"
