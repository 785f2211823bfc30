"""ACC-34: PostgreSQL goes away in the middle of a publish; everything is either published or still at its source."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import psycopg

from postroom.messagebox.embedded import EmbeddedServer
from tests.support.house import House
from tests.support.waiting import wait_until

FILES, LINES = 20, 200


def test_every_order_is_published_once_or_still_at_its_source(home: Path) -> None:
    with EmbeddedServer(home / ".postroom" / "postgres") as server, House(home) as house:
        house.apply(
            """
            app.receive_port("In").location(
                "drop", adapters.File("in", pattern="*.jsonl"), pipeline=pipelines.JsonLines(promote=PROMOTE)
            )
            app.send_port("All", adapters.Null(), filter=BTS.ReceivePortName == "In")
            """
        )
        expected: Counter[int] = Counter()
        for file in range(FILES):
            numbers = range(file * LINES, (file + 1) * LINES)
            expected.update(numbers)
            house.drop(f"{file}.jsonl", b"\n".join(json.dumps({"region": "EU", "n": n}).encode() for n in numbers))
        house.start_pipeline()
        wait_until(lambda: _count(server.url()) > 0, 90, what="the first published orders")
        pid = server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.pid is None, 30, what="PostgreSQL to be gone")
        server.start()
        wait_until(lambda: _count(server.url()) >= FILES * LINES, 90, what="all orders")
        with psycopg.connect(server.url()) as connection:
            bodies = connection.execute("SELECT convert_from(body, 'UTF8') FROM messagebox.parts").fetchall()
        assert Counter(json.loads(body)["n"] for (body,) in bodies) == expected
        wait_until(lambda: not list((home / "in").glob("*.jsonl")), 30, what="an empty source folder")
        house.run("check")


def _count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM messagebox.spool").fetchone()
    assert row is not None
    return int(row[0])
