"""Run components and maps with a time limit, so that a call that never returns does not delay other messages.

Calls run on worker threads, and the caller waits only for as long as a call may take. A thread that is over its time is
abandoned: it gets an exception, which ends it as soon as it runs Python again, and is not waited for (ADR 0030).
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from postroom.errors import PipelineFailure

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class TimedOut(BaseException):
    """Raised inside an abandoned thread. Not an Exception, so that ``except Exception`` does not swallow it."""


class TimeLimit:
    """The time limit of the components of one pipeline run. It knows which component runs, and since when."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._name = ""
        self._since: float | None = None

    def call(self, name: str, function: Callable[[], _T]) -> _T:
        """Call ``function`` as a call of the component ``name``. Only inside ``iterate``, which watches the time."""
        self._name, self._since = name, time.monotonic()
        try:
            return function()
        finally:
            self._since = None

    def each(self, name: str, items: Iterator[_T]) -> Iterator[_T]:
        """Yield the items, each step as a call of the component ``name``."""
        # StopIteration must not leave a call inside a generator; an empty list is the end.
        while found := self.call(name, lambda: list(islice(items, 1))):
            yield found[0]

    def iterate(self, steps: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        """Yield the items of an iterator that runs on a worker thread. Raise PipelineFailure if a component takes too
        long."""
        worker = _take_worker()
        worker.start(steps)
        try:
            while True:
                worker.request(1)
                while (step := worker.next_step(self._get_remaining())) is None:
                    if self._since is not None and self._get_remaining() <= 0:
                        worker.abandon()
                        raise PipelineFailure(
                            f"{self._name}: it did not return within {self._seconds:g} seconds.",
                            why="This is the time limit of the pipeline for one call of a component.",
                            hint="Correct the component, or raise seconds of the pipeline; then resume.",
                        )
                if step.error is not None:
                    raise step.error
                if not step.items:
                    return
                yield step.items[0]
        finally:
            worker.end()

    def _get_remaining(self) -> float:
        since = self._since
        return self._seconds if since is None else since + self._seconds - time.monotonic()


@dataclass(frozen=True, kw_only=True)
class TimedCall(Generic[_T_co]):
    """A call, and the maximum number of seconds that it may take."""

    seconds: float
    function: Callable[[], _T_co]


def call_each_with_timeout(calls: Sequence[TimedCall[_T]]) -> list[_T | BaseException]:
    """Run calls one after the other on a worker thread. Return for each its result, what it raised, or TimedOut."""
    results: list[_T | BaseException] = []
    while len(results) < len(calls):
        worker = _take_worker()
        remaining = calls[len(results) :]
        worker.start(lambda remaining=remaining: map(_capture, remaining))  # type: ignore[misc]
        # All at once: the worker starts a call while this thread still takes the result of the one before.
        worker.request(len(remaining))
        for call in remaining:
            # The call has started when the one before it ended, which is not after its result was taken here.
            step = worker.next_step(call.seconds)
            if step is None:
                worker.abandon()
                results.append(TimedOut())
                break
            results.append(step.items[0])
        worker.end()
    return results


def _capture(call: TimedCall[_T]) -> _T | BaseException:
    try:
        return call.function()
    except TimedOut:
        raise
    except BaseException as error:
        return error


@dataclass(frozen=True)
class _Step:
    """A step of an iterator: an item, nothing at the end, or an error."""

    items: tuple[Any, ...] = ()
    error: BaseException | None = None


class _Worker:
    """A thread that takes a step of an iterator for each request; then of the next iterator."""

    def __init__(self) -> None:
        self._iterators: queue.SimpleQueue[Callable[[], Iterator[Any]]] = queue.SimpleQueue()
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._steps: queue.SimpleQueue[_Step] = queue.SimpleQueue()
        self._pending = 0
        self._thread = threading.Thread(target=self._run, name="time limit", daemon=True)
        self._thread.start()

    def start(self, steps: Callable[[], Iterator[Any]]) -> None:
        self._iterators.put(steps)

    def request(self, steps: int) -> None:
        self._pending += steps
        for _ in range(steps):
            self._requests.put(True)

    def next_step(self, timeout: float) -> _Step | None:
        """Return the next step that was requested, or None after the timeout."""
        try:
            step = self._steps.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            return None
        self._pending -= 1
        return step

    def end(self) -> None:
        """Close the iterator, on the thread. The thread can be used again if it has taken all requested steps."""
        self._requests.put(False)
        if not self._pending:
            _idle_workers().append(self)

    def abandon(self) -> None:
        abandon_thread(self._thread)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                self._take_steps(self._iterators.get())
        except TimedOut:
            return

    def _take_steps(self, steps: Callable[[], Iterator[Any]]) -> None:
        iterator: Iterator[Any] = iter(())
        is_first = True
        while self._requests.get():
            try:
                if is_first:
                    iterator, is_first = steps(), False
                step = _Step((next(iterator),))
            except StopIteration:
                step = _Step()
            except TimedOut:
                raise
            except BaseException as error:
                step = _Step(error=error)
            self._steps.put(step)
            del step


@lru_cache(maxsize=1)
def _idle_workers() -> deque[_Worker]:
    """The idle threads of this process. They are kept because starting one takes as long as reading a small document,
    and because paths and maps are compiled for a thread."""
    return deque()


def _take_worker() -> _Worker:
    with suppress(IndexError):
        while True:
            worker = _idle_workers().pop()
            # The threads of the process that this one was forked from are not alive here.
            if worker.is_alive:
                return worker
    return _Worker()


def abandon_thread(thread: threading.Thread) -> None:
    """End a thread as soon as it runs Python again."""
    assert thread.ident is not None
    _abandoned_threads().add(thread)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(TimedOut))


@lru_cache(maxsize=1)
def _abandoned_threads() -> WeakSet[threading.Thread]:
    return WeakSet()


def count_abandoned_threads() -> int:
    """Return how many abandoned threads of this process are alive. Each keeps its message, and perhaps a core."""
    return sum(thread.is_alive() for thread in list(_abandoned_threads()))
