"""How a task begins in its worker, and how one that was not the first goes on: one thing at a time (ADR 0135, 0161).

A worker that dies (a crash in a library of C, out of memory, an interpreter that never comes back) leaves no word. So a
task that is not the first attempt notes what it is about to begin, takes it by itself, and the note goes when that is
done. Where a note has been made twice and nothing has come of it, the third attempt does not begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import psycopg

from postroom.errors import PostroomError, Unavailable
from postroom.pipelines.watch import left_behind
from postroom.spark.heartbeat import ended_if_silent

_T = TypeVar("_T")

#: How often one thing may end the worker that it is alone with.
MOST_BEGUN = 2
#: How many threads may be left behind in a worker before another one takes its place.
MOST_LEFT_BEHIND = 8
#: How much longer than one call may take the interpreter of a worker may be silent.
GRACE = 30.0


@contextmanager
def in_worker(seconds: float) -> Iterator[bool]:
    """Around all that a task does; its worker ends if it is silent for so long. Tells whether the task has to be
    careful: another attempt has failed."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        yield False
        return
    refuse_if_burdened()
    with ended_if_silent(seconds):
        yield context.attemptNumber() > 0


def refuse_if_burdened() -> None:
    """Fails a task, and with it its worker, if too many of those before it have left a thread behind."""
    threads = left_behind()
    if threads > MOST_LEFT_BEHIND:
        raise Unavailable(
            f"This worker has {threads} threads that were given up and do not end.",
            why="Each keeps a message in memory, and may keep a core busy.",
            hint="Nothing: another worker takes its place.",
        )


def begin_carefully(
    *,
    note: Callable[[], int],
    work: Callable[[], _T],
    refuse: Callable[[], _T],
    take_back: Callable[[], None],
) -> _T:
    """Does the work for one thing, after ``note`` has written down for good how often it was begun; or refuses it.
    ``take_back`` undoes the note, on a connection of its own."""
    if note() > MOST_BEGUN:
        return refuse()
    try:
        return work()
    except MemoryError:
        raise  # another attempt may well end the worker
    except Exception:
        # Whatever it was, the worker is alive; its connection may not be.
        with suppress(psycopg.Error, PostroomError):
            take_back()
        raise
