"""The output of the demo while it runs."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest

from postroom.cli.commands.deployment import demo
from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.example_applications import Figures


def test_without_a_terminal_a_line_is_written_after_each_change(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_SECONDS_BETWEEN_LINES", 0.0)
    live = demo._Live(quiet=False)
    for count in (0, 0, 0, 5, 5):
        live.show("orders dropped", Figures(delivered=Counter({"out/europe": count})))
    assert capsys.readouterr().err.splitlines() == [
        "orders dropped: delivered to out/europe 0",
        "orders dropped: delivered to out/europe 5",
    ]


def test_the_last_figures_are_written_although_lines_are_seldom(capsys: pytest.CaptureFixture[str]) -> None:
    live = demo._Live(quiet=False)
    with live:
        for count in range(3):
            live.show("orders dropped", Figures(delivered=Counter({"out/europe": count})))
    assert capsys.readouterr().err.splitlines() == [
        "orders dropped: delivered to out/europe 0",
        "orders dropped: delivered to out/europe 2",
    ]


def test_a_long_title_fits_on_one_line() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    title = "252 orders dropped, 12 of them malformed; Spark is starting"
    console.print(demo._build_table(Figures(), title=title))
    assert console.export_text().splitlines()[0] == title


def test_an_unknown_example_is_rejected_with_suggestions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "warehouse"]) == ExitCode.NOT_FOUND
    error = capsys.readouterr().err
    assert "There is no example 'warehouse'." in error
    assert "bulk, component, envelope, failures, http, lookup, orders, procurement, two_way" in error
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_not_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "notes.txt"
    kept.write_text("keep", encoding="utf-8")
    assert main(["demo", "--home", str(tmp_path)]) == ExitCode.STATE
    assert f"{tmp_path} is not empty." in capsys.readouterr().err
    assert kept.read_text(encoding="utf-8") == "keep"
