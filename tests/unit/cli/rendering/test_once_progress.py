"""The progress bars of `postroom pipeline run --once`."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest

from postroom.cli.rendering import once_progress
from postroom.cli.rendering.once_progress import show_once_progress
from postroom.spark.bulk.progress import BulkProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make_progress(*, left: int, total: int) -> BulkProgress:
    return BulkProgress(
        location="nightly", rows=12_000, bad=3, rate=850.4, files_left=1, bytes_left=left, bytes_total=total
    )


def read_text(screen: Terminal) -> str:
    """Return what was drawn, without the control characters."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())


def test_a_terminal_shows_rows_rate_and_size_of_bulk_files() -> None:
    screen = Terminal()
    with show_once_progress(screen) as show:
        assert show is not None
        for left in (750_000, 0):
            show([make_progress(left=left, total=1_000_000)], {})
    text = read_text(screen)
    assert "nightly" in text
    assert "100%, 1.0 of 1.0 MB, 12,000 rows, 3 bad, 850/s" in text


def test_a_bar_does_not_go_back_when_more_files_are_found() -> None:
    shown = []
    for progress in ([(500, 1_000)], [(500, 1_000), (9_500, 10_000)], [(500, 1_000), (2_500, 10_000)]):
        screen = Terminal()
        with show_once_progress(screen) as show:
            assert show is not None
            for left, total in progress:
                show([make_progress(left=left, total=total)], {})
        shown.append(re.findall(r"(\d+)%", read_text(screen))[-1])
    assert shown == ["50", "50", "75"]


def test_a_terminal_shows_the_messages_and_the_rate_of_each_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(once_progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    screen = Terminal()
    with show_once_progress(screen) as show:
        assert show is not None
        show([], {"Lake": 0})
        now[0] = 4.0
        show([], {"Lake": 100_002, "Lines": 7})
    text = read_text(screen)
    assert "Lake" in text
    assert "100,002 messages, 25,000/s" in text
    assert "Lines" in text


def test_output_to_a_file_has_no_progress_bar() -> None:
    with show_once_progress(io.StringIO()) as show:
        assert show is None
