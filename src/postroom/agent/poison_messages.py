"""Isolate messages that kill the process that works on them (ADR 0029).

A segmentation fault or an out-of-memory kill ends a process without an exception. The next process works on every
message alone, and records the attempt in the MessageBox first. A poison message, which was attempted MAX_ATTEMPTS times
without finishing, is suspended instead of being tried again.

    attempt_alone(connect, record=..., undo=..., process=..., suspend=...)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from postroom.errors import MessageFailure, PostroomError
from postroom.messagebox.connection import Connect, Connection

T = TypeVar("T")
Failure = TypeVar("Failure", bound=MessageFailure)

#: A message may kill this many processes that work on it alone.
MAX_ATTEMPTS = 2


def attempt_alone(
    connect: Connect,
    *,
    record: Callable[[], int],
    undo: Callable[[Connection], None],
    process: Callable[[], T],
    suspend: Callable[[], T],
) -> T:
    """Process one message, or suspend it if it has already killed MAX_ATTEMPTS processes.

    ``record`` commits a new attempt and returns how many there are now. ``undo`` removes it again after an exception,
    because the process has survived. It gets a new connection, because the one in use may be broken.
    """
    if record() > MAX_ATTEMPTS:
        return suspend()
    try:
        return process()
    except MemoryError:
        raise  # the next attempt may kill the process
    except Exception:
        with suppress(PostroomError), connect() as connection:
            undo(connection)
        raise


def process_death_failure(failure: type[Failure], *, process: str, hint: str) -> Failure:
    """Return the failure of a message that killed every process that worked on it. ``process`` is its kind."""
    return failure(
        f"The {process} that processed it died at every attempt.",
        why=f"A {process} dies if a library crashes, if it runs out of memory, or if it does not respond for longer"
        " than the time limit of the pipeline or map. Its log may show the cause.",
        hint=hint,
    )
