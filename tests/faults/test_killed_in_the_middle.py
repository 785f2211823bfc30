"""Killed with -9 in the middle of the work, restarted, and every order is where it belongs.

Published exactly once; delivered to exactly the ports whose filter it meets. A send that was under way at the kill may
be repeated; a file is named after its message, so that a repeated send gives the same file again, and an order that was
published twice gives two.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.support.house import House
from tests.support.orders import APPLICATION, FOLDERS, Orders, numbers
from tests.support.waiting import wait_until


def ask(url: str, query: str) -> int:
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(query).fetchone()
    except psycopg.OperationalError:
        return -1
    return -1 if row is None else int(row[0] or 0)


def pid_of(output: str, name: str) -> int:
    """The newest process of that name that the supervisor has told of."""
    lines = [line for line in output.splitlines() if line.startswith(f"{name} runs as process")]
    return int(lines[-1].split()[-1]) if lines else 0


def published(url: str) -> int:
    """How many orders are in the MessageBox for good, by the receipts of their files."""
    return ask(url, "SELECT sum((outcome->>'last')::int) FROM messagebox.receipts WHERE (outcome->>'done')::boolean")


def delivered(house: House) -> int:
    return sum(len(list((house.home / folder).glob("[!.]*"))) for folder in FOLDERS.values())


def kill_pipeline(house: House, output: str, url: str, count: int) -> None:
    os.kill(pid_of(output, "pipeline Main"), signal.SIGKILL)
    assert published(url) < count, "killed too late"


def kill_host(house: House, output: str, url: str, count: int) -> None:
    before = delivered(house)
    wait_until(lambda: delivered(house) > before, 90, what="the next deliveries")
    os.kill(pid_of(output, "host Main"), signal.SIGKILL)
    assert ask(url, "SELECT count(*) FROM messagebox.work_queue") > 0, "killed too late"


def kill_postgres(house: House, output: str, url: str, count: int) -> None:
    [pid_file] = (house.home / ".postroom" / "postgres").glob("**/postmaster.pid")
    assert published(url) < count, "killed too late"
    os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGKILL)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("count", "kill"),
    [(20_000, kill_pipeline), (4_000, kill_host), (4_000, kill_postgres)],
    ids=["pipeline", "host", "postgres"],
)
def test_every_order_is_where_it_belongs(home: Path, count: int, kill: Callable[[House, str, str, int], None]) -> None:
    orders = Orders(count)
    with House(home) as house:
        up = house.start("up", str(house.write(APPLICATION)), "--master", "local[2]")
        url = wait_until(house.url, 60, what="the database")
        wait_until(lambda: "pipeline Main runs" in up.output(), 60, what="the pipeline")
        files = list(orders.files(per_file=count // 40))
        for name, content in files[:20]:
            house.drop(name, content)
        wait_until(lambda: published(url) > 0 and delivered(house) > 0, 120, what="the first orders on their way")
        # The second half is dropped now, and not all of it can be published when the kill comes.
        for name, content in files[20:]:
            house.drop(name, content)
        kill(house, up.output(), url, count)
        for port, folder in FOLDERS.items():
            house.wait_for_files(folder, len(orders.expected[port]), timeout=240)
        wait_until(lambda: ask(url, "SELECT count(*) FROM messagebox.work_queue") == 0, 60, what="an empty queue")
        for port, folder in FOLDERS.items():
            assert numbers(house.arrived(folder)) == orders.expected[port]
        assert ask(url, "SELECT count(*) FROM messagebox.suspended_queue") == 0
        wait_until(lambda: not list((home / "in").glob("*.jsonl")), 30, what="an empty source folder")
        assert published(url) == count
        house.run("check")
        assert up.stop() == 0, up.output()
