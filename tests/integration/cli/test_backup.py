"""`postroom backup` and `postroom restore`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.up.deploy_and_supervise import lock_home
from tests.integration.cli.conftest import APP, Run
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.installation import Installation


def test_a_backup_of_your_own_server_is_restored_into_an_empty_database(
    applied: Run, app: Path, tmp_path: Path, databases: Databases
) -> None:
    order = tmp_path / "order.json"
    order.write_text("{}")
    applied("port", "stop", "Europe")
    applied("publish", order, "-p", "Region=EU")
    home = tmp_path / "home"
    backup = applied("backup", tmp_path / "backup", "--home", home, "--include", app, "-o", "json")
    assert backup.code == ExitCode.OK
    assert (backup.json["folder"], backup.json["included_files"]) == (str(tmp_path / "backup"), 1)
    assert backup.json["paused_seconds"] < 5
    assert "Dumping the database" in backup.err

    not_empty = applied("restore", tmp_path / "backup", "--home", home)
    assert not_empty.code == ExitCode.STATE
    assert "The database is not empty: it has a MessageBox." in not_empty.err
    with databases.clone("template0") as empty:
        restored = applied(
            "restore", tmp_path / "backup", "--home", home, "--reason", "disk", "--database", empty, "-o", "json"
        )
        assert restored.code == ExitCode.OK
        [entry] = applied("audit", "list", "--action", "messagebox.restore", "--database", empty, "-o", "json").json
        assert entry["reason"] == "disk"
        assert (restored.json["applications"], restored.json["skipped_files"]) == (["orders"], [str(app)])
        [suspended] = applied("instance", "list", "--database", empty, "-o", "json").json
        assert suspended["state"] == "suspended"
        assert applied("check", "--database", empty).code == ExitCode.OK


def test_the_embedded_server_is_restored_into_a_new_home_folder(home: Path) -> None:
    with open_folder() as other:
        try:
            (home / "app.py").write_text(APP)
            order = home / "order.json"
            order.write_text("{}")
            original = Installation(home)
            original.run("apply", str(home / "app.py"))
            original.run("publish", str(order), "-p", "Region=EU")
            table = original.run("backup", str(home / "backup"), "--include", str(home / "app.py"))
            assert "claimed files   0" in table
            restored = Installation(other)
            restored.run("restore", str(home / "backup"))
            assert (other / "app.py").read_text() == APP
            assert restored.run_json("message", "list") == original.run_json("message", "list")
            assert {port["uri"] for port in restored.run_json("port", "list")} == {
                (other / "out" / name).as_uri() for name in ("europe", "big", "audit")
            }
            assert [each["uri"] for each in restored.run_json("location", "list")] == [(other / "in").as_uri()]
            assert "Nothing to change" in restored.run("plan", str(home / "app.py"))
            assert "All invariants hold." in restored.run("check")
            assert "not empty" in restored.run("restore", str(home / "backup"), exit_code=ExitCode.STATE)
        finally:
            EmbeddedServer(server_folder(other)).destroy()


def test_a_home_that_runs_is_refused_before_the_backup_is_verified(
    applied: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert applied("backup", tmp_path / "backup", "--home", home).code == ExitCode.OK
    with lock_home(home):
        code = main(["restore", str(tmp_path / "backup"), "--home", str(home)])
    error = capsys.readouterr().err
    assert code == ExitCode.STATE
    assert f"{home} is in use: process {os.getpid()} runs it." in error
    assert "Use another --home. To replace this MessageBox, stop that process" in error
    assert "Verifying" not in error


def test_a_backup_needs_a_messagebox(tmp_path: Path) -> None:
    error = Installation(tmp_path / "nothing").run("backup", str(tmp_path / "backup"), exit_code=ExitCode.NOT_FOUND)
    assert "There is no MessageBox" in error


def test_a_folder_without_a_manifest_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    error = Installation(tmp_path / "home").run("restore", str(tmp_path / "empty"), exit_code=ExitCode.NOT_FOUND)
    assert "There is no backup" in error
    assert not (tmp_path / "home").exists()
