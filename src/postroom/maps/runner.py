"""A thread that maps run on, so that one that never returns holds nobody up (ADR 0030).

The thread is kept from message to message, because what was compiled is compiled for a thread. One that is over its
time is left behind, and another one takes its place.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from postroom.errors import MapFailure
from postroom.pipelines.watch import OutOfTime, give_up

_T = TypeVar("_T")
_Answers = queue.SimpleQueue[tuple[_T | None, BaseException | None]]


@dataclass(frozen=True, kw_only=True)
class Job(Generic[_T]):
    """One call, and how long it may take."""

    seconds: float
    work: Callable[[], _T]


class Runner:
    """One caller at a time."""

    def __init__(self) -> None:
        self._thread: _Thread | None = None

    def run(self, jobs: Sequence[Job[_T]]) -> list[_T | BaseException]:
        """What came of each, in order: its answer, or what it raised."""
        results: list[_T | BaseException] = []
        while len(results) < len(jobs):
            if self._thread is None:
                self._thread = _Thread()
            answers: _Answers[_T] = queue.SimpleQueue()
            remaining = jobs[len(results) :]
            self._thread.take(remaining, answers)
            for job in remaining:
                try:
                    # It began when the one before it ended, which is not after that was asked for here.
                    answer, error = answers.get(timeout=job.seconds)
                except queue.Empty:
                    self._thread.give_up()
                    self._thread = None
                    results.append(_too_long(job.seconds))
                    break
                results.append(error if error is not None else answer)  # type: ignore[arg-type]
        return results


class _Thread:
    def __init__(self) -> None:
        self._batches: queue.SimpleQueue[tuple[Sequence[Job[object]], _Answers[object]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._batches,), name="maps", daemon=True)
        self._thread.start()
        # It ends with the last one who could give it work.
        weakref.finalize(self, self._batches.put, None)

    def take(self, jobs: Sequence[Job[_T]], answers: _Answers[_T]) -> None:
        self._batches.put((jobs, answers))  # type: ignore[arg-type]

    def give_up(self) -> None:
        give_up(self._thread)


def _work(batches: queue.SimpleQueue[tuple[Sequence[Job[object]], _Answers[object]] | None]) -> None:
    try:
        while (batch := batches.get()) is not None:
            jobs, answers = batch
            for job in jobs:
                try:
                    answers.put((job.work(), None))
                except OutOfTime:
                    return
                except BaseException as error:
                    answers.put((None, error))
            del batch, jobs, answers
    except OutOfTime:
        return


def _too_long(seconds: float) -> MapFailure:
    return MapFailure(
        f"It did not return within {seconds:g} seconds.",
        why="A map may take so long for one message, and was given up.",
        hint="Correct the map, or raise its seconds; then resume.",
    )
