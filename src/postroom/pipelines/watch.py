"""Limits on time: a component that does not return must not hold up the messages behind it.

The steps of a pipeline with components run on a thread of their own, and who waits for them waits only so long. A call
that is over its time is given up: its thread gets an exception, which ends it as soon as it runs Python again, and is
not waited for (ADR 0088).
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from postroom.errors import PipelineFailure

_T = TypeVar("_T")


class OutOfTime(BaseException):
    """What a component sees that is given up. Not an Exception, so that ``except Exception`` does not swallow it."""


class Watch:
    """Knows which component is at work, and since when. One per interchange."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._name = ""
        self._since: float | None = None

    def call(self, name: str, work: Callable[[], _T]) -> _T:
        """Runs ``work`` as a call of the component ``name``."""
        self._name, self._since = name, time.monotonic()
        try:
            return work()
        finally:
            self._since = None

    def over(self, steps: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        """What the iterator gives, each step of it on a thread of its own. PipelineFailure if a component takes longer
        than it may."""
        thread: _Steps[_T] = _Steps(steps)
        try:
            while True:
                while (answer := thread.ask(self._remaining())) is None:
                    if self._since is not None and self._remaining() <= 0:
                        thread.give_up()
                        raise PipelineFailure(
                            f"{self._name}: it did not return within {self._seconds:g} seconds.",
                            why="A component may take so long for one message, and was given up.",
                            hint="Correct the component, or raise seconds of the pipeline; then resume.",
                        )
                if answer.error is not None:
                    raise answer.error
                if not answer.items:
                    return
                yield answer.items[0]
        finally:
            thread.end()

    def _remaining(self) -> float:
        since = self._since
        return self._seconds if since is None else since + self._seconds - time.monotonic()


@dataclass(frozen=True)
class _Answer(Generic[_T]):
    """What a step gave: an item, nothing at the end, or an error."""

    items: tuple[_T, ...] = ()
    error: BaseException | None = None


class _Steps(Generic[_T]):
    """A thread that takes one step of an iterator whenever it is asked."""

    def __init__(self, steps: Callable[[], Iterator[_T]]) -> None:
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[_Answer[_T]] = queue.SimpleQueue()
        self._waiting = False
        self._thread = threading.Thread(target=self._run, args=(steps,), name="pipeline components", daemon=True)
        self._thread.start()

    def ask(self, seconds: float) -> _Answer[_T] | None:
        """The next answer, or None if there is none yet after so many seconds."""
        if not self._waiting:
            self._asked.put(True)
            self._waiting = True
        try:
            answer = self._answers.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None
        self._waiting = False
        return answer

    def end(self) -> None:
        self._asked.put(False)

    def give_up(self) -> None:
        give_up(self._thread)

    def _run(self, steps: Callable[[], Iterator[_T]]) -> None:
        try:
            iterator = steps()
            while self._asked.get():
                try:
                    self._answers.put(_Answer((next(iterator),)))
                except StopIteration:
                    self._answers.put(_Answer())
                    return
                except OutOfTime:
                    return
                except BaseException as error:
                    self._answers.put(_Answer(error=error))
                    return
        except OutOfTime:
            return


def give_up(thread: threading.Thread) -> None:
    """Ends a thread as soon as it runs Python again."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(OutOfTime))
