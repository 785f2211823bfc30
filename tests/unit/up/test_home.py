"""Only one `up` runs in a home folder at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.errors import StateError
from postroom.up.deploy_and_supervise import lock_home


def test_a_home_folder_is_created_and_locked_by_one_process(tmp_path: Path) -> None:
    home = tmp_path / "some" / "home"
    with (
        lock_home(home),
        pytest.raises(StateError, match=f"is in use: process {os.getpid()} runs it"),
        lock_home(home),
    ):
        pass
    with lock_home(home):
        pass


def test_a_second_up_names_the_running_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.write_text("from postroom import Application\napp = Application('orders')\n")
    with lock_home(tmp_path):
        code = main(["up", str(app), "--home", str(tmp_path)])
    assert code == ExitCode.STATE
    assert f"is in use: process {os.getpid()} runs it" in capsys.readouterr().err
    assert not (tmp_path / ".postroom" / "postgres").exists()


def test_a_home_folder_that_cannot_be_created_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.write_text("from postroom import Application\napp = Application('orders')\n")
    assert main(["up", str(app), "--home", str(tmp_path / "app.py" / "home")]) in (ExitCode.STATE, ExitCode.USAGE)
    assert main(["up", str(app), "--home", "/proc/nope"]) == ExitCode.STATE
    error = capsys.readouterr().err
    assert "The home folder /proc/nope cannot be used." in error
    assert "Traceback" not in error
