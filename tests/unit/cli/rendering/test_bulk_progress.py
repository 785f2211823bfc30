"""The progress bar of `postroom pipeline run --once`."""

from __future__ import annotations

import io

from postroom.cli.rendering.bulk_progress import show_bulk_progress
from postroom.spark.bulk.progress import BulkProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_rows_rate_and_remaining_time() -> None:
    screen = Terminal()
    with show_bulk_progress(screen) as show:
        assert show is not None
        for left in (750, 0):
            show(
                BulkProgress(
                    location="nightly", rows=12_000, bad=3, rate=850.4, files_left=1, bytes_left=left, bytes_total=1000
                )
            )
    text = screen.getvalue()
    assert "nightly" in text
    assert "12,000 rows, 3 bad, 850/s" in text
    assert "1.0/1.0 kB" in text


def test_output_to_a_file_has_no_progress_bar() -> None:
    with show_bulk_progress(io.StringIO()) as show:
        assert show is None
