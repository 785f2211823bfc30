"""The MessageBox of a command: --database, POSTROOM_DATABASE, or the embedded server under --home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.client.client import connect
from postroom.errors import DefinitionError
from postroom.messagebox.embedded import EmbeddedServer
from tests.integration.cli.conftest import Run


def postroom(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "postroom", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_apply_creates_the_embedded_messagebox_and_commands_start_it(home: Path, app: Path) -> None:
    missing = postroom("port", "list", "--home", home)
    assert missing.returncode == ExitCode.NOT_FOUND
    assert "There is no MessageBox" in missing.stderr
    applied = postroom("apply", app, "--home", home)
    assert applied.returncode == ExitCode.OK, applied.stderr
    server = EmbeddedServer(home / ".postroom" / "postgres")
    assert server.pid is None
    listed = postroom("port", "list", "--home", home, "-o", "json")
    assert [port["name"] for port in json.loads(listed.stdout)] == ["Audit", "BigOrders", "Europe"]
    assert json.loads(listed.stdout)[2]["uri"] == (home / "out/europe").absolute().as_uri()
    with server:
        pid = server.pid
        assert postroom("port", "stop", "Europe", "--home", home).returncode == ExitCode.OK
        assert server.pid == pid, "a command uses the running server and leaves it running"


def test_a_missing_server_is_unavailable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["port", "list", "--database", "postgresql://127.0.0.1:1/x"]) == ExitCode.UNAVAILABLE
    error = capsys.readouterr().err
    assert error.startswith("Error: The MessageBox cannot be reached.")
    assert "The address comes from --database." in error


def test_an_error_names_the_environment_variable_of_the_address(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POSTROOM_DATABASE", "postgresql://127.0.0.1:1/x")
    assert main(["port", "list", "--home", str(tmp_path)]) == ExitCode.UNAVAILABLE
    assert "The address comes from POSTROOM_DATABASE." in capsys.readouterr().err


@pytest.mark.parametrize("address", ["garbage", "mysql://user:secret@server/x", "postgresql://server/x?colour=secret"])
def test_an_invalid_database_url_is_rejected(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["port", "list"], ["pipeline", "show"]):
        assert main([*command, "--database", address]) == ExitCode.REFUSED
        error = capsys.readouterr().err
        assert error.startswith("Error: The URL of the database is not valid.")
        assert "secret" not in error
    with pytest.raises(DefinitionError):
        connect(address)


def test_a_database_without_a_messagebox_is_rejected(
    server: EmbeddedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["port", "list", "--database", server.url(database="postgres")]) == ExitCode.STATE
    assert "postroom apply" in capsys.readouterr().err


def test_the_environment_variable_names_the_messagebox(
    applied: Run, database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROOM_DATABASE", database)
    assert main(["port", "list", "-o", "json"]) == ExitCode.OK
    assert len(json.loads(capsys.readouterr().out)) == 3
