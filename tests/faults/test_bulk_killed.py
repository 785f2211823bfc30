"""A pipeline killed with -9 in the middle of a large file, and started again with other settings and more cores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.messagebox.connection import connect
from tests.support.house import House
from tests.support.waiting import wait_until

ROWS = 40_000

BULK = """
app.receive_port("Nightly").location(
    "nightly",
    adapters.SparkReader("csv", "in", settle=0, options={"header": True}, schema="id bigint, region string"),
    pipeline=pipelines.Rows(promote={Region: "region"}),
)
app.send_port("Everything", adapters.Null(), filter=BTS.ReceivePortName == "Nightly")
"""


def published(database: str) -> int:
    with connect(database) as connection:
        [(count,)] = connection.execute("SELECT count(*) FROM spool")
    return int(count)


@pytest.mark.timeout(600)
def test_every_row_is_published_once_however_the_file_would_be_split_now(home: Path, database: str) -> None:
    with House(home, database) as house:
        house.apply(BULK)
        house.drop("big.csv", b"id,region\n" + b"".join(b"%d,EU\n" % number for number in range(ROWS)))
        run = ("pipeline", "run", "Main", "--once")
        first = house.start(*run, "--master", "local[1]", "--conf", "spark.sql.files.maxPartitionBytes=9000")
        wait_until(lambda: not first.runs or published(database) > 2_000, 240, what="some messages")
        first.kill()
        before = published(database)
        assert 2_000 < before < ROWS, first.output()
        second = house.start(*run, "--master", "local[2]", "--conf", "spark.sql.files.maxPartitionBytes=100000")
        wait_until(lambda: not second.runs, 240, what="the end of the file")
        assert second.stop() == 0, second.output()
    with connect(database) as connection:
        bodies = [json.loads(body)["id"] for (body,) in connection.execute("SELECT body FROM parts")]
        queued = connection.execute("SELECT count(*) FROM work_queue").fetchone()
    assert sorted(bodies) == list(range(ROWS))
    assert queued == (ROWS,)
    assert not [path for path in (home / "in").rglob("*") if path.is_file()]
