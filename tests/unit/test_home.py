"""One `up` at a time in a home folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.errors import StateError
from postroom.operations.home import held_home


def test_a_home_is_made_and_held_by_one(tmp_path: Path) -> None:
    home = tmp_path / "some" / "home"
    with (
        held_home(home),
        pytest.raises(StateError, match=f"is up already, as process {os.getpid()}"),
        held_home(home),
    ):
        pass
    with held_home(home):
        pass


def test_a_second_up_says_who_was_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.write_text("from postroom import Application\napp = Application('orders')\n")
    with held_home(tmp_path):
        code = main(["up", str(app), "--home", str(tmp_path)])
    assert code == ExitCode.STATE
    assert f"is up already, as process {os.getpid()}" in capsys.readouterr().err
    assert not (tmp_path / ".postroom" / "postgres").exists()


def test_a_home_that_cannot_be_made_is_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "app.py"
    app.write_text("from postroom import Application\napp = Application('orders')\n")
    assert main(["up", str(app), "--home", str(tmp_path / "app.py" / "home")]) in (ExitCode.STATE, ExitCode.USAGE)
    assert main(["up", str(app), "--home", "/proc/nope"]) == ExitCode.STATE
    error = capsys.readouterr().err
    assert "The home folder /proc/nope cannot be used." in error
    assert "Traceback" not in error
