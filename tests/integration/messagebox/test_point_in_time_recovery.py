"""A server with continuous archiving is recovered to a point in time, as the how-to page describes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.embedded.binaries import find_binaries
from postroom.messagebox.embedded.server import STORE
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.migrate import migrate
from tests.support.box import Box, Region, add_test_objects, open_box
from tests.support.folders import open_folder
from tests.support.waiting import wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@contextmanager
def start(data: Path, settings: dict[str, str]) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(data, settings={"shared_buffers": "32MB", **settings})
    try:
        server.start()
        yield server
    finally:
        server.destroy()


def make_folder(folder: Path) -> Path:
    """Create a folder that the account of PostgreSQL can write to."""
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def publish(box: Box, body: bytes) -> None:
    box.agent().publish([Message.of(body, promoted={Region: "EU"})])


def read_bodies(box: Box) -> set[bytes]:
    return {bytes(body) for (body,) in box.connection.execute("SELECT body FROM parts")}


def test_a_messagebox_is_recovered_to_a_point_in_time(folder: Path) -> None:
    binaries = find_binaries(STORE)
    wal = make_folder(folder / "wal")
    archiving = {"archive_mode": "on", "archive_command": f"cp %p {shlex.quote(str(wal))}/%f"}
    base = make_folder(folder / "restored") / "pgdata"
    with start(folder / "server", archiving) as server:
        migrate(server.url())
        with connect(server.url()) as connection:
            add_test_objects(connection)
        with open_box(server.url()) as box:
            box.add_port("Europe", "Orders.Region == 'EU'")
            publish(box, b"before the base backup")
            binaries.run("pg_basebackup", "--pgdata", base, "--checkpoint=fast", "--dbname", server.url())
            publish(box, b"after the base backup")
            run_all_jobs_once(box.connection)
            target = box.one("SELECT clock_timestamp()::text")
            publish(box, b"too late")
            box.connection.execute("DELETE FROM work_queue")
            segment = box.one("SELECT pg_walfile_name(pg_switch_wal())")
            wait_until(lambda: (wal / segment).exists(), what="the archived log")

    (base / "recovery.signal").touch()
    recovery = {
        "restore_command": f"cp {shlex.quote(str(wal))}/%f %p",
        "recovery_target_time": target,
        "recovery_target_action": "promote",
    }
    with start(folder / "restored", recovery) as server:
        with connect(server.url()) as connection:
            wait_until(
                lambda: connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,), what="the recovery"
            )
        with open_box(server.url()) as box:
            assert read_bodies(box) == {b"before the base backup", b"after the base backup"}
            assert box.queued() == {"Europe": 2}
            assert check(box.connection) == []
            publish(box, b"after the recovery")
            assert box.queued() == {"Europe": 3}
