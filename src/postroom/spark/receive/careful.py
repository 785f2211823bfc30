"""One interchange at a time, after a task has failed: the one that ends its worker is found, and suspended (ADR 0135).

A worker that dies (a crash in a library of C, out of memory, an interpreter that never comes back) leaves no word. So a
task that is not the first attempt notes what it is about to begin, takes it by itself, and the note goes with the row
when it is done. Where a note has been made twice and nothing has come of it, the third attempt does not begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from postroom.agent.receiving import Received
from postroom.errors import PipelineFailure, PostroomError, Unavailable
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.pipelines.stages import FORMAT_SECONDS
from postroom.pipelines.watch import left_behind
from postroom.spark.heartbeat import ended_if_silent
from postroom.spark.login import Login

#: How often an interchange may end the worker that it is alone with.
MOST_BEGUN = 2
#: How many threads may be left behind in a worker before another one takes its place.
MOST_LEFT_BEHIND = 8
#: How much longer than its pipeline allows for one call the interpreter of a worker may be silent.
GRACE = 30.0


@contextmanager
def in_worker(location: ReceiveLocation, grace: float) -> Iterator[bool]:
    """Around all that a task does. Tells whether it has to be careful: another attempt has failed."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        yield False
        return
    refuse_if_burdened()
    with ended_if_silent(float(location.pipeline.get("seconds") or FORMAT_SECONDS) + grace):
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
    login: Login,
    *,
    note: Callable[[], int],
    receive: Callable[[], list[Received]],
    refuse: Callable[[PipelineFailure], list[Received]],
    take_back: Callable[[Connection], None],
) -> list[Received]:
    """Receives one interchange, after ``note`` has written down for good how often it was begun; or has it refused.
    ``take_back`` undoes the note."""
    begun = note()
    if begun > MOST_BEGUN:
        return refuse(_ended_workers())
    try:
        return receive()
    except MemoryError:
        raise  # another attempt may well end the worker
    except Exception:
        # Whatever it was, the worker is alive; its connection may not be.
        with suppress(psycopg.Error, PostroomError), login.connect("receive") as connection:
            take_back(connection)
        raise


def _ended_workers() -> PipelineFailure:
    return PipelineFailure(
        "The worker that received it died, whenever it was tried.",
        why="A worker dies if a library crashes, if it uses more memory than there is, or if it does not answer for"
        " longer than the pipeline allows; the log of the pipeline may tell which.",
        hint="Correct the message and send it again, or correct the component and resume.",
    )
