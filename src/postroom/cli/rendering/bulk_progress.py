"""Show the progress of bulk files in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

    from postroom.spark.bulk.bulk_once import Watcher
    from postroom.spark.bulk.progress import BulkProgress


@contextmanager
def show_bulk_progress(stream: TextIO | None = None) -> Iterator[Watcher | None]:
    """Yield a callback that draws a progress bar for each location. Yield None if the output is not a terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[rows]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(file=stream)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(progress: BulkProgress) -> None:
            bad = f", {progress.bad:,} bad" if progress.bad else ""
            rows = f"{progress.rows:,} rows{bad}, {progress.rate:,.0f}/s"
            if progress.location not in tasks:
                tasks[progress.location] = bars.add_task(progress.location, total=None, rows=rows)
            bars.update(
                tasks[progress.location],
                total=progress.bytes_total,
                completed=progress.bytes_total - progress.bytes_left,
                rows=rows,
            )

        yield show
