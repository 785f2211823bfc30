"""Show the progress of a single run of a pipeline in the terminal: bulk files, then sinks. Bars only go forward."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

    from postroom.spark.bulk.progress import BulkProgress
    from postroom.spark.pipeline_process import Watcher


@contextmanager
def show_once_progress(stream: TextIO | None = None) -> Iterator[Watcher | None]:
    """Yield a callback that draws a bar for each location and each sink. Yield None if the output is not a terminal."""
    stream = stream or sys.stdout
    if not stream.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream)) as bars:
        tasks: dict[str, TaskID] = {}
        shares: dict[str, float] = {}
        started: dict[str, float] = {}

        def draw(name: str, text: str, share: float | None = None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=None, text=text)
            bars.update(tasks[name], total=None if share is None else 1.0, completed=share, text=text)

        def show(bulk: Sequence[BulkProgress], written: Mapping[str, int]) -> None:
            for progress in bulk:
                # More files may be found meanwhile: the bar waits until they are as far as it is.
                share = max(_share(progress), shares.get(progress.location, 0.0))
                shares[progress.location] = share
                draw(progress.location, f"{share:.0%}, {_format_bulk(progress)}", share)
            for sink, messages in written.items():
                # How many messages wait is not counted.
                seconds = time.monotonic() - started.setdefault(sink, time.monotonic())
                draw(sink, f"{messages:,} messages, {messages / seconds if seconds else 0:,.0f}/s")

        yield show


def _share(progress: BulkProgress) -> float:
    return 1.0 - progress.bytes_left / progress.bytes_total if progress.bytes_total else 0.0


def _format_bulk(progress: BulkProgress) -> str:
    bad = f", {progress.bad:,} bad" if progress.bad else ""
    done = (progress.bytes_total - progress.bytes_left) / 1e6
    return f"{done:,.1f} of {progress.bytes_total / 1e6:,.1f} MB, {progress.rows:,} rows{bad}, {progress.rate:,.0f}/s"
