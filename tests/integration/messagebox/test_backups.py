"""A `pg_dump` of a running MessageBox restores to a consistent one, and does not stop the jobs."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.embedded.binaries import find_binaries
from postroom.messagebox.embedded.server import STORE
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region, open_box
from tests.support.databases import Databases

LOGS = [f"{kind}_ref_count_log_{number}" for kind in ("message", "part") for number in (1, 2)]


@pytest.fixture
def in_use(box: Box) -> Box:
    """A MessageBox with counts in the totals and in the logs: two ports, four messages, one delivery completed."""
    for name in ("Europe", "Audit"):
        box.add_port(name, "Orders.Region == 'EU'")
    publish(box, 3)
    run_jobs(box.connection)
    publish(box, 1)
    complete(box.connection, 1)
    return box


def publish(box: Box, count: int) -> None:
    box.agent().publish([Message.of(b"an order", promoted={Region: "EU"}) for _ in range(count)])


def complete(connection: Connection, limit: int) -> int:
    queues, claim_id = HostQueues("Default"), uuid.uuid4()
    claimed = queues.dequeue(
        connection, claim_id=claim_id, host_instance=0, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=limit
    )
    return queues.complete(connection, claim_id, [message.seq for message in claimed])


def run_jobs(connection: Connection) -> dict[str, int]:
    runs = run_all_jobs_once(connection)
    assert [run.error for run in runs if run.error] == []
    return {run.name: run.rows for run in runs}


@contextmanager
def snapshot(box: Box) -> Iterator[str]:
    """Yield the id of an exported snapshot, as pg_dump takes it before it locks the tables."""
    with connect(box.url) as connection, connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        yield row[0]


def dump_and_restore(box: Box, snapshot_id: str, into: str) -> None:
    binaries = find_binaries(STORE)
    dump = subprocess.run(
        [binaries.folder / "pg_dump", "--format=custom", f"--snapshot={snapshot_id}", box.url],
        capture_output=True,
        check=True,
        **binaries.get_options(),
    ).stdout
    subprocess.run(
        [binaries.folder / "pg_restore", "--exit-on-error", f"--dbname={into}"],
        input=dump,
        check=True,
        **binaries.get_options(),
    )


def test_a_dump_whose_snapshot_is_older_than_a_fold_restores_the_right_counts(
    in_use: Box, databases: Databases
) -> None:
    with databases.clone("template0") as empty:
        with snapshot(in_use) as older_snapshot:
            # The jobs run between the snapshot and the dump.
            complete(in_use.connection, 3)
            publish(in_use, 2)
            runs = run_jobs(in_use.connection)
            assert runs["manage_message_ref_count_log"] > 0
            assert runs["manage_part_ref_count_log"] > 0
            assert runs["message_cleanup"] > 0
            dump_and_restore(in_use, older_snapshot, empty)
        with open_box(empty) as restored:
            assert check(restored.connection) == []
            assert (restored.count("messages"), restored.count("queued")) == (4, 7)
            # A message is deleted after its last delivery, not before.
            assert complete(restored.connection, 6) == 6
            run_jobs(restored.connection)
            assert (restored.count("messages"), restored.count("parts")) == (1, 1)
            assert complete(restored.connection, 1) == 1
            run_jobs(restored.connection)
            assert (restored.count("messages"), restored.count("parts")) == (0, 0)
            assert check(restored.connection) == []


def test_a_running_dump_does_not_stop_the_fold(in_use: Box) -> None:
    with connect(in_use.url) as dump, dump.transaction():
        dump.execute(f"LOCK TABLE {', '.join(LOGS)} IN ACCESS SHARE MODE")
        runs = run_jobs(in_use.connection)
        assert runs["manage_message_ref_count_log"] > 0
        assert runs["manage_part_ref_count_log"] > 0
        assert {table: in_use.count_rows(table) for table in LOGS} == dict.fromkeys(LOGS, 0)
        complete(in_use.connection, 1)
        assert run_jobs(in_use.connection)["message_cleanup"] == 1


def test_no_job_truncates_a_table(in_use: Box) -> None:
    """TRUNCATE hides the rows of any table from older snapshots."""
    found = in_use.connection.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'messagebox'::regnamespace AND prosrc ~* 'truncate'"
    )
    assert found.fetchall() == []
