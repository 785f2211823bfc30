from __future__ import annotations

import io
import sys
import uuid
from datetime import UTC, datetime

import pytest

from postroom.cli.rendering.output import Format, show_record, show_rows
from postroom.messagebox.instances import InstanceState
from postroom.messagebox.intake.location_progress import LocationState
from postroom.messagebox.sinks.sink_progress import SinkState


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


INSTANCES = [
    {
        "instance_id": uuid.UUID(int=1),
        "state": "suspended, not resumable",
        "service": "Europe",
        "attempt": 1,
        "since": datetime(2026, 1, 31, tzinfo=UTC),
        "reason": "The published message could not be routed because no subscribers were found.",
    }
]


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_fits_the_terminal_without_breaking_ids(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    show_rows(INSTANCES, list(INSTANCES[0]), Format.TABLE, optional=["attempt", "since"])
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert str(uuid.UUID(int=1)) in lines[1]
    assert ("attempt" in lines[0], "since" in lines[0]) == (width == 200, width == 200)


def test_a_column_that_is_last_after_others_are_left_out_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    row = {"name": "Europe", "host": "Main", "filter": "Orders.Region == 'EU' or " * 4, "uri": "file:///" + "x" * 60}
    show_rows([row], list(row), Format.TABLE, optional=["uri", "host"])
    assert terminal.getvalue().split()[:3] == ["name", "host", "filter"]


@pytest.mark.parametrize(
    ("state", "colour"),
    [
        (InstanceState.SUSPENDED_NOT_RESUMABLE.value, 31),
        (InstanceState.SCHEDULED.value, 33),
        (LocationState.THROTTLED.value, 33),
        (LocationState.FAILING.value, 31),
        (SinkState.WRITING.value, 32),
    ],
)
def test_a_state_has_a_colour_only_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str, colour: int
) -> None:
    rows = [{"state": state}]
    show_rows(rows, ["state"], Format.TABLE)
    assert capsys.readouterr().out.splitlines()[1] == state
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    show_rows(rows, ["state"], Format.TABLE)
    assert f"\x1b[{colour}m{state}" in terminal.getvalue()


def test_lines_end_with_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_record({"state": "suspended", "what_to_do": "a longer line\nshort"}, Format.TABLE)
    show_rows(
        [{"name": "A", "reason": "a longer line"}, {"name": "B", "reason": "short"}], ["name", "reason"], Format.TABLE
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[0] == "state       suspended"


def test_a_long_list_inside_a_cell_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"after": {"instances": 5, "ids": ["a", "b", "c", "d", "e"]}}
    show_rows([entry], ["after"], Format.TABLE)
    assert "instances: 5, ids: [a, b, c and 2 more]" in capsys.readouterr().out
    show_rows([entry], ["after"], Format.JSON)
    assert '"e"' in capsys.readouterr().out
