"""Limits on time: a component that does not return must not hold up the messages behind it.

The steps of a pipeline run on another thread, and who waits for them waits only so long. A call that is over its time
is given up: its thread gets an exception, which ends it as soon as it runs Python again, and is not waited for
(ADR 0030).
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, TypeVar
from weakref import WeakSet

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

    def each(self, name: str, items: Iterator[_T]) -> Iterator[_T]:
        """What the iterator gives, each step of it as a call of the component ``name``."""
        # No StopIteration may leave a call in a generator; a list tells the end from an item.
        while found := self.call(name, lambda: list(islice(items, 1))):
            yield found[0]

    def over(self, steps: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        """What the iterator gives, each step of it on another thread. PipelineFailure if a component takes longer
        than it may."""
        thread: _Thread[_T] = _thread()
        thread.begin(steps)
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


class _Thread(Generic[_T]):
    """A thread that takes one step of an iterator whenever it is asked; and then of another one."""

    def __init__(self) -> None:
        self._begun: queue.SimpleQueue[Callable[[], Iterator[_T]]] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[_Answer[_T]] = queue.SimpleQueue()
        self._waiting = False
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)
        self._thread.start()

    def begin(self, steps: Callable[[], Iterator[_T]]) -> None:
        self._waiting = False
        self._begun.put(steps)

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
        """Nobody asks for more of this iterator. Only a thread that has answered is of use to others."""
        self._asked.put(False)
        if not self._waiting:
            _idle().append(self)

    def give_up(self) -> None:
        give_up(self._thread)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                self._take_steps(self._begun.get())
        except OutOfTime:
            return

    def _take_steps(self, steps: Callable[[], Iterator[_T]]) -> None:
        """Until it is asked for no more; after the last answer there is nothing to take."""
        iterator: Iterator[_T] = iter(())
        is_first = True
        while self._asked.get():
            try:
                if is_first:
                    iterator, is_first = steps(), False
                answer = _Answer((next(iterator),))
            except StopIteration:
                answer = _Answer()
            except OutOfTime:
                raise
            except BaseException as error:
                answer = _Answer(error=error)
            self._answers.put(answer)
            del answer


@lru_cache(maxsize=1)
def _idle() -> deque[_Thread[Any]]:
    """Threads that have nothing to do, in this process. They are kept because starting one takes as long as reading a
    small document, and because what was compiled is compiled for a thread."""
    return deque()


def _thread() -> _Thread[Any]:
    with suppress(IndexError):
        while True:
            thread = _idle().pop()
            # None that was left in the process that this one was forked from.
            if thread.is_alive:
                return thread
    return _Thread()


def give_up(thread: threading.Thread) -> None:
    """Ends a thread as soon as it runs Python again."""
    assert thread.ident is not None
    _given_up().add(thread)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(OutOfTime))


@lru_cache(maxsize=1)
def _given_up() -> WeakSet[threading.Thread]:
    return WeakSet()


def left_behind() -> int:
    """How many threads of this process were given up and are still there: each keeps its message, perhaps a core."""
    return sum(thread.is_alive() for thread in list(_given_up()))
