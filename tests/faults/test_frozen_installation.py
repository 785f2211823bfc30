"""Each process of an installation freezes for ever (SIGSTOP) while it has work. Every order is still delivered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.chaos_installation import ChaosInstallation
from tests.support.installation import Installation
from tests.support.orders import APPLICATION, Orders
from tests.support.waiting import wait_until

COUNT = 2_000


@pytest.mark.sample("failing installation")
def test_a_frozen_process_is_replaced_and_its_orders_are_delivered(home: Path) -> None:
    orders = Orders(COUNT)
    files = list(orders.files(per_file=COUNT // 20))
    with Installation(home) as installation:
        up = installation.start("up", str(installation.write(APPLICATION)), "--master", "local[2]")
        chaos = ChaosInstallation(installation, up)

        def find_driver() -> list[psutil.Process]:
            return [psutil.Process(chaos.find_pid("pipeline Main"))]

        def find_host() -> list[psutil.Process]:
            return [psutil.Process(chaos.find_pid("host Main"))]

        def find_jvm() -> list[psutil.Process]:
            return [child for child in list_children() if child.name() == "java"]

        def find_workers() -> list[psutil.Process]:
            """The workers that publish now: they are blocked in the statement that takes the routing lock."""
            return [child for child in list_children() if "pyspark.daemon" in child.cmdline()]

        def list_children() -> list[psutil.Process]:
            children = find_driver()[0].children(recursive=True)
            return [child for child in children if child.status() != psutil.STATUS_ZOMBIE]

        steps: list[Callable[[], list[psutil.Process]]] = [find_workers, find_jvm, find_driver, find_host]
        per_step = len(files) // (len(steps) + 1)
        for number, find in enumerate(steps):
            with chaos.block_publishing():
                for name, content in files[number * per_step : (number + 1) * per_step]:
                    installation.drop_file(name, content)
                chaos.wait_for_publisher()
                frozen = find()
                assert frozen
                for process in frozen:
                    process.suspend()
            wait_until(
                lambda published=(number + 1) * per_step * (COUNT // 20): chaos.count_published() == published,  # type: ignore[misc]
                what=f"the orders after {find.__name__}",
            )
            psutil.wait_procs(frozen)

        # All of them run without the supervisor.
        wait_until(lambda: chaos.find_pid("host Main") != frozen[0].pid, what="another host process")
        supervisor = psutil.Process(up.pid)
        supervisor.suspend()
        try:
            for name, content in files[len(steps) * per_step :]:
                installation.drop_file(name, content)
            chaos.wait_for_end(orders)
        finally:
            supervisor.resume()
        chaos.verify(orders)
        assert up.stop() == 0, up.output()
