"""A backup that is killed leaves neither a paused location nor a folder that looks complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.file_pause import lock_files
from postroom.messagebox.maintenance.check import check
from postroom.operations.backup import create_backup, read_manifest, restore_backup
from postroom.operations.backup.manifest import verify_backup
from postroom.receiving.files.file_claimer import FileClaimer
from tests.integration.operations.backup import interrupted_backup
from tests.support.box import Box
from tests.support.contents import Contents
from tests.support.databases import Databases
from tests.support.file_location import add_file_location
from tests.support.interrupted_process import run_until_killed
from tests.support.waiting import wait_until


@pytest.mark.parametrize("point", interrupted_backup.POINTS)
def test_a_killed_backup_leaves_no_pause_and_no_half_backup(box: Box, tmp_path: Path, point: str) -> None:
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    location = add_file_location(box, home / "in")
    (home / "in" / "a.json").write_bytes(b"{}")
    with connect(box.url, user=box.host().role_name) as connection:
        FileClaimer(connection, location, home).scan()
    backup = tmp_path / "backup"
    run_until_killed(interrupted_backup.main, box.url, str(home), str(backup), point)

    def can_be_moved() -> bool:
        with lock_files(box.connection) as is_locked:
            return is_locked

    wait_until(can_be_moved, what="the end of the pause")
    if point == "after the rename":
        # Only a complete backup has its name.
        verify_backup(backup, read_manifest(backup))
        return
    assert not backup.exists()
    assert create_backup(box.url, home, backup).claimed_files == 1
    verify_backup(backup, read_manifest(backup))
    assert {path.name for path in tmp_path.iterdir()} == {"home", "backup"}


def test_a_killed_restore_leaves_an_empty_database_and_can_be_repeated(
    box: Box, databases: Databases, tmp_path: Path
) -> None:
    home, backup = tmp_path / "home", tmp_path / "backup"
    create_backup(box.url, home, backup)
    with databases.clone("template0") as empty, connect(empty) as connection:
        run_until_killed(interrupted_backup.restore, empty, str(home), str(backup))
        other_sessions = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        wait_until(lambda: connection.execute(other_sessions).fetchone() == (0,), what="the end of psql")
        assert not Contents(connection).exists()
        restore_backup(empty, home, backup, read_manifest(backup))
        assert check(connection) == []
