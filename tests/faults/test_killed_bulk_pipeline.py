"""A pipeline killed with -9 in the middle of a large file, and started again with other settings and more cores."""

from __future__ import annotations

import json
from pathlib import Path

import psutil

from postroom.messagebox.connection import connect
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

#: Whoever publishes comes to a halt when there are some messages, while somebody holds a lock.
HALT = """
CREATE FUNCTION messagebox.halt() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF (SELECT count(*) FROM messagebox.spool) > 2000 THEN PERFORM pg_advisory_xact_lock(2000); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER halt AFTER INSERT ON messagebox.spool FOR EACH STATEMENT EXECUTE FUNCTION messagebox.halt()
"""
HALTED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 2000 AND NOT granted"


def test_every_row_is_published_once_however_the_file_would_be_split_now(home: Path, database: str) -> None:
    with Installation(home, database) as installation, connect(database) as connection:

        def count(query: str) -> int:
            [(found,)] = connection.execute(query)
            return int(found)

        installation.apply(BULK)
        installation.drop_file("big.csv", b"id,region\n" + b"".join(b"%d,EU\n" % number for number in range(ROWS)))
        connection.execute(HALT)
        connection.execute("SELECT pg_advisory_lock(2000)")
        run = ("pipeline", "run", "Main", "--once")
        first = installation.start(*run, "--master", "local[1]", "--conf", "spark.sql.files.maxPartitionBytes=9000")
        wait_until(lambda: not first.is_running or count(HALTED), what="a publisher that waits")
        assert first.is_running, first.output()
        family = psutil.Process(first.pid).children(recursive=True)
        first.kill()
        assert psutil.wait_procs(family, PATIENCE)[1] == []
        assert 0 < count("SELECT count(*) FROM spool") < ROWS
        connection.execute("SELECT pg_advisory_unlock(2000)")
        connection.execute("DROP TRIGGER halt ON messagebox.spool")
        second = installation.start(*run, "--master", "local[2]", "--conf", "spark.sql.files.maxPartitionBytes=100000")
        wait_until(lambda: not second.is_running, what="the end of the file")
        assert second.stop() == 0, second.output()
        bodies = [json.loads(body)["id"] for (body,) in connection.execute("SELECT body FROM parts")]
        assert sorted(bodies) == list(range(ROWS))
        assert count("SELECT count(*) FROM work_queue") == ROWS
    assert not [path for path in (home / "in").rglob("*") if path.is_file()]
