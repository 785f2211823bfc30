"""Show the progress of a single run of a pipeline in the terminal: bulk files, then sinks. Bars only go forward."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

    from postroom.spark.bulk.progress import BulkProgress
    from postroom.spark.pipeline_once import OnceWatcher
    from postroom.spark.sinks.drain import SinkWritten


@contextmanager
def show_once_progress(stream: TextIO | None = None) -> Iterator[OnceWatcher | None]:
    """Yield a callback that draws a bar for each location and each sink. Yield None if the output is not a terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from postroom.spark.bulk.progress import BulkProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream)) as bars:
        tasks: dict[str, TaskID] = {}
        shares: dict[str, float] = {}

        def show(progress: BulkProgress | SinkWritten) -> None:
            if isinstance(progress, BulkProgress):
                name = progress.location
                # More files may be found meanwhile: the bar waits until they are as far as it is.
                shares[name] = share = max(_share(progress), shares.get(name, 0.0))
                text = f"{share:.0%}, {_format_bulk(progress)}"
            else:
                # How many messages wait is not counted.
                name, share, text = progress.sink, None, f"{progress.messages:,} messages, {progress.rate:,.0f}/s"
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=None, text=text)
            bars.update(tasks[name], total=None if share is None else 1.0, completed=share, text=text)

        yield show


def _share(progress: BulkProgress) -> float:
    return 1.0 - progress.bytes_left / progress.bytes_total if progress.bytes_total else 0.0


def _format_bulk(progress: BulkProgress) -> str:
    bad = f", {progress.bad:,} bad" if progress.bad else ""
    done = (progress.bytes_total - progress.bytes_left) / 1e6
    return f"{done:,.1f} of {progress.bytes_total / 1e6:,.1f} MB, {progress.rows:,} rows{bad}, {progress.rate:,.0f}/s"
