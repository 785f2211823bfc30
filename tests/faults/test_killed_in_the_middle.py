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


def kill_pipeline(house: House, output: str, url: str) -> None:
    wait_until(lambda: ask(url, "SELECT count(*) FROM messagebox.receipts") >= 3, 90, what="some published files")
    os.kill(pid_of(output, "pipeline Main"), signal.SIGKILL)


def kill_host(house: House, output: str, url: str) -> None:
    wait_until(lambda: len(list((house.home / FOLDERS["Europe"]).glob("*"))) > 50, 90, what="some deliveries")
    os.kill(pid_of(output, "host Main"), signal.SIGKILL)


def kill_postgres(house: House, output: str, url: str) -> None:
    wait_until(lambda: ask(url, "SELECT count(*) FROM messagebox.receipts") >= 3, 90, what="some published files")
    [pid_file] = (house.home / ".postroom" / "postgres").glob("**/postmaster.pid")
    os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGKILL)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("count", "kill"), [(20_000, kill_pipeline), (4_000, kill_host), (4_000, kill_postgres)], ids=lambda one: str(one)
)
def test_every_order_is_where_it_belongs(home: Path, count: int, kill: Callable[[House, str, str], None]) -> None:
    orders = Orders(count)
    with House(home) as house:
        up = house.start("up", str(house.write(APPLICATION)), "--master", "local[2]")
        url = wait_until(house.url, 60, what="the database")
        wait_until(lambda: "pipeline Main runs" in up.output(), 60, what="the pipeline")
        for name, content in orders.files(per_file=500):
            house.drop(name, content)
        kill(house, up.output(), url)
        for port, folder in FOLDERS.items():
            house.wait_for_files(folder, len(orders.expected[port]), timeout=200)
        wait_until(lambda: ask(url, "SELECT count(*) FROM messagebox.work_queue") == 0, 60, what="an empty queue")
        for port, folder in FOLDERS.items():
            assert numbers(house.arrived(folder)) == orders.expected[port]
        assert ask(url, "SELECT count(*) FROM messagebox.suspended_queue") == 0
        wait_until(lambda: not list((home / "in").glob("*.jsonl")), 30, what="an empty source folder")
        published = "SELECT sum((outcome->>'last')::int) FROM messagebox.receipts WHERE (outcome->>'done')::boolean"
        assert ask(url, published) == count
        house.run("check")
        assert up.stop() == 0, up.output()
