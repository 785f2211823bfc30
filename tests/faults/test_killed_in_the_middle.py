"""Killed with -9 in the middle of the work, restarted, and every order is where it belongs.

Published exactly once; delivered to exactly the ports whose filter it meets. A send that was under way at the kill may
be repeated; a file is named after its message, so that a repeated send gives the same file again, and an order that was
published twice gives two.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import psycopg
import pytest

from postroom.private_folder import PARENT
from tests.support.house import House
from tests.support.orders import APPLICATION, FOLDERS, Orders, numbers
from tests.support.waiting import wait_until

COUNT = 20_000


def ask(url: str, query: str) -> int:
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(query).fetchone()
    except psycopg.OperationalError:
        return -1
    return -1 if row is None else int(row[0] or 0)


def pid_of(output: str, name: str) -> int:
    """The newest process of that name that the supervisor has told of."""
    lines = [line for line in output.splitlines() if line.startswith(f"{name} starts as process")]
    return int(lines[-1].split()[-1]) if lines else 0


def published(url: str) -> int:
    """How many orders are in the MessageBox for good, by the receipts of their files."""
    return ask(url, "SELECT sum((outcome->>'last')::int) FROM messagebox.receipts WHERE (outcome->>'done')::boolean")


def delivered(house: House) -> int:
    return sum(len(list((house.home / folder).glob("[!.]*"))) for folder in FOLDERS.values())


def kill_pipeline(output: str) -> None:
    """The driver dies; its JVM and Python workers must not outlive it, nor its folder the next driver's start."""
    driver = psutil.Process(pid_of(output, "pipeline Main"))
    family = driver.children(recursive=True)
    assert any(member.name() == "java" for member in family)
    driver.kill()
    _, alive = psutil.wait_procs(family, 60)
    assert alive == []


def kill_postgres(house: House) -> None:
    [pid_file] = (house.home / ".postroom" / "postgres").glob("**/postmaster.pid")
    os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGKILL)


@pytest.mark.timeout(900)
def test_every_order_is_where_it_belongs(home: Path) -> None:
    """The pipeline, a host and PostgreSQL, one after the other, each while it has work (ACC-34 is the last)."""
    orders = Orders(COUNT)
    files = list(orders.files(per_file=COUNT // 40))
    with House(home) as house:
        up = house.start("up", str(house.write(APPLICATION)), "--master", "local[2]")
        url = wait_until(house.url, 120, what="the database")
        wait_until(lambda: pid_of(up.output(), "pipeline Main"), 120, what="the pipeline")

        def drop(some: slice) -> None:
            for name, content in files[some]:
                house.drop(name, content)

        drop(slice(0, 10))
        wait_until(lambda: published(url) > 0 and delivered(house) > 0, 240, what="the first orders on their way")

        drop(slice(10, 20))
        killed = pid_of(up.output(), "pipeline Main")
        kill_pipeline(up.output())
        before = published(url)
        assert before < 20 * len(orders.lines) // 40, "killed too late"
        wait_until(lambda: pid_of(up.output(), "pipeline Main") != killed, 60, what="another pipeline process")

        sent = delivered(house)
        wait_until(lambda: delivered(house) > sent and published(url) > before, 240, what="the next orders")
        os.kill(pid_of(up.output(), "host Main"), signal.SIGKILL)
        assert ask(url, "SELECT count(*) FROM messagebox.work_queue") > 0, "killed too late"

        drop(slice(20, 40))
        wait_until(lambda: published(url) > COUNT // 2, 240, what="the second half on its way")
        assert published(url) < COUNT, "killed too late"
        kill_postgres(house)

        for port, folder in FOLDERS.items():
            house.wait_for_files(folder, len(orders.expected[port]), timeout=400)
        wait_until(lambda: ask(url, "SELECT count(*) FROM messagebox.work_queue") == 0, 120, what="an empty queue")
        for port, folder in FOLDERS.items():
            assert numbers(house.arrived(folder)) == orders.expected[port]
        assert ask(url, "SELECT count(*) FROM messagebox.suspended_queue") == 0
        wait_until(lambda: not list((home / "in").glob("*.jsonl")), 60, what="an empty source folder")
        assert published(url) == COUNT
        house.run("check")
        last = pid_of(up.output(), "pipeline Main")
        assert up.stop() == 0, up.output()
    assert [pid for pid in (killed, last) if scratch_of(pid).exists()] == []


def scratch_of(pid: int) -> Path:
    return PARENT / f"postroom-{os.geteuid()}" / f"spark-{pid}"
