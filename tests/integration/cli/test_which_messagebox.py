"""Which MessageBox a command works with: --database, POSTROOM_DATABASE, or the embedded one under --home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.messagebox.embedded import EmbeddedServer
from tests.integration.cli.conftest import Run


def postroom(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "postroom", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_the_embedded_one_is_made_by_apply_and_runs_for_each_command(home: Path, app: Path) -> None:
    missing = postroom("port", "list", "--home", home)
    assert missing.returncode == ExitCode.NOT_FOUND
    assert "There is no MessageBox" in missing.stderr
    applied = postroom("apply", app, "--home", home)
    assert applied.returncode == ExitCode.OK, applied.stderr
    server = EmbeddedServer(home / ".postroom" / "postgres")
    assert server.pid is None
    listed = postroom("port", "list", "--home", home, "-o", "json")
    assert [one["name"] for one in json.loads(listed.stdout)] == ["Audit", "BigOrders", "Europe"]
    assert json.loads(listed.stdout)[2]["uri"] == (home / "out/europe").absolute().as_uri()
    with server:
        pid = server.pid
        assert postroom("port", "stop", "Europe", "--home", home).returncode == ExitCode.OK
        assert server.pid == pid, "a command attaches to the server that runs, and leaves it running"


def test_a_server_that_is_not_there_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", "list", "--database", "postgresql://127.0.0.1:1/x"]) == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err.startswith("Error: The MessageBox cannot be reached.")


def test_a_database_that_nothing_was_applied_to(server: EmbeddedServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", "list", "--database", server.url(database="postgres")]) == ExitCode.STATE
    assert "postroom apply" in capsys.readouterr().err


def test_the_environment_names_it(
    applied: Run, database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_DATABASE", database)
    assert main(["port", "list", "-o", "json"]) == ExitCode.OK
    assert len(json.loads(capsys.readouterr().out)) == 3
