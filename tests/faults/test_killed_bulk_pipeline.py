"""A pipeline is killed with kill -9 while it reads a large file, and restarted with other settings and more cores."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from postroom.messagebox.connection import connect
from tests.support.contents import Contents
from tests.support.installation import Installation
from tests.support.waiting import PATIENCE, wait_until

ROWS = 8_000

BULK = """
app.receive_port("Nightly").location(
    "nightly",
    adapters.SparkReader("csv", "in", settle=0, options={"header": True}, schema="id bigint, region string"),
    pipeline=pipelines.Rows(promote={Region: "region"}),
)
app.send_port("Everything", adapters.Null(), filter=BTS.ReceivePortName == "Nightly")
"""

BLOCKED_COUNT = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 2000 AND NOT granted"


@pytest.mark.sample("killed pipeline")
def test_every_row_is_published_once_although_the_settings_for_splits_have_changed(home: Path, database: str) -> None:
    with Installation(home, database) as installation, connect(database) as connection:
        contents = Contents(connection)
        installation.apply(BULK)
        installation.drop_file("big.csv", b"id,region\n" + b"".join(b"%d,EU\n" % number for number in range(ROWS)))
        contents.block_publishing(after=2_000)
        run = ("pipeline", "run", "Main", "--once")
        first = installation.start(*run, "--master", "local[1]", "--conf", "spark.sql.files.maxPartitionBytes=9000")
        wait_until(
            lambda: not first.is_running or contents.one(BLOCKED_COUNT), what="a publisher that waits for the lock"
        )
        assert first.is_running, first.output()
        child_processes = psutil.Process(first.pid).children(recursive=True)
        first.kill()
        assert psutil.wait_procs(child_processes, PATIENCE)[1] == []
        assert 0 < contents.count("messages") < ROWS
        contents.unblock_publishing()
        second = installation.start(*run, "--master", "local[2]", "--conf", "spark.sql.files.maxPartitionBytes=100000")
        wait_until(lambda: not second.is_running, what="the end of the run")
        assert second.stop() == 0, second.output()
        bodies = [json.loads(body)["id"] for body in contents.bodies()]
        assert sorted(bodies) == list(range(ROWS))
        assert contents.count("queued") == ROWS
    assert not [path for path in (home / "in").rglob("*") if path.is_file()]
