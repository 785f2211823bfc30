"""The event loop of one instance: asyncio without threads, sockets and a clock.

Callbacks run in the order in which they were scheduled, so a replay runs them in the same order. The time changes only
with an event, and timers fire only when the instance gets an event for them. So ``asyncio.sleep``,
``asyncio.timeout``, ``asyncio.gather`` and task groups work in an orchestration, and survive a restart.

Code that Python runs when it frees an object is not the code of the instance that happens to run. The garbage collector
frees reference cycles at any time, in any thread. ``__del__`` methods and the ``finally`` blocks of generators run
then, and could act as an instance that has nothing to do with them. So no instance runs while the collector does.

A coroutine that nobody awaits is freed without having run. Python only warns about it. In an orchestration it is an
error: the message that it would have sent is missing.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from datetime import datetime, timedelta
from functools import cache
from inspect import CORO_CREATED
from types import AsyncGeneratorType, CoroutineType
from typing import Any, TypeVar

from postroom.errors import StateError
from postroom.orchestrations.code_places import find_origin, find_place, is_called_by, mark_place
from postroom.orchestrations.failures import NotAwaited

_T = TypeVar("_T")

#: How often a coroutine may await something else when it is closed.
_MAX_CLOSES = 100
#: The references that a loop over a list has to one of its objects: the list, the variable, and the argument of
#: ``sys.getrefcount``.
_OWN_REFERENCES = 3
#: How many frames of the code that created it a coroutine of an instance knows: that of the orchestration, and one of
#: Postroom. In asyncio's debug mode it knows more.
_ORIGIN_DEPTH = 2
#: The hashes of the tasks of an instance are consecutive. Up to this number they do not overlap those of another one.
_HASH_NUMBERS = 256


class InstanceTask(asyncio.Task[_T]):
    """A task that hashes by its number in the instance, not by its address.

    A task group keeps its tasks in a set, and cancels them in the order of the set. A replay has to do it in the same
    order. asyncio also keeps the tasks of all loops in one set, so the hash has the id of the instance, too."""

    def __init__(self, coro: Any, *, hash_value: int, **settings: Any) -> None:
        self._hash = hash_value
        super().__init__(coro, **settings)

    def __hash__(self) -> int:
        return self._hash


class InstanceLoop(asyncio.AbstractEventLoop):
    """The callbacks and timers of an instance. ``owner`` is the execution that the loop belongs to. It numbers the
    timers."""

    def __init__(self, started_at: datetime, owner: Any) -> None:
        self.owner = owner
        self.now = started_at
        #: The tasks that are not done, each with its context and the place that created it.
        self.tasks: dict[asyncio.Task[Any], tuple[Context, str]] = {}
        self.errors: list[BaseException] = []
        #: Operations that were called and have not begun.
        self._operations: list[CoroutineType[Any, Any, Any]] = []
        #: An error for each coroutine that was freed without having been awaited.
        self.unawaited: list[NotAwaited] = []
        self._last_hash = (owner.instance_id.int % 2**48) * _HASH_NUMBERS
        #: The async generators that have begun and have not ended. None of them is left to the garbage collector.
        self._generators: list[tuple[AsyncGeneratorType[Any, Any], Context]] = []
        self._closing: list[asyncio.Task[None]] = []
        self._is_ending = False
        self._started_at = started_at
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: dict[int, tuple[datetime, asyncio.TimerHandle]] = {}

    def run_until_waiting(self) -> None:
        """Run callbacks until every task waits for an event."""
        with self._enter(self):
            while self._ready:
                handle = self._ready.popleft()
                try:
                    if not handle.cancelled():
                        handle._run()
                except (SystemExit, KeyboardInterrupt):
                    # asyncio raises these two, after it has stored them in their task. They must not end the thread.
                    continue
            self._operations = [
                operation for operation in self._operations if inspect.getcoroutinestate(operation) == CORO_CREATED
            ]
            # What nobody but the list refers to is freed now, and noted: nobody can await it any more.
            self._operations = [
                operation for operation in self._operations if sys.getrefcount(operation) > _OWN_REFERENCES
            ]
        self.tasks = {task: origin for task, origin in self.tasks.items() if not task.done()}
        if self._generators:
            self._generators = [
                (generator, context) for generator, context in self._generators if generator.ag_frame is not None
            ]

    @contextmanager
    def _enter(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Let the thread run code of this instance: as the instance, or with a loop that refuses everything when the
        code is dropped. Without a loop, asyncio would create one in the main thread."""
        before = asyncio._get_running_loop(), sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth()
        asyncio._set_running_loop(loop)
        sys.set_asyncgen_hooks(self._add_generator, _ignore_freed_generator)  # type: ignore[arg-type]
        sys.set_coroutine_origin_tracking_depth(_ORIGIN_DEPTH)
        try:
            yield
        finally:
            running, hooks, depth = before
            sys.set_coroutine_origin_tracking_depth(depth)
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(running)

    def _add_generator(self, generator: AsyncGeneratorType[Any, Any]) -> None:
        """Called when an async generator begins."""
        task = asyncio.current_task(self)
        self._generators.append((generator, self.tasks[task][0] if task in self.tasks else copy_context()))

    def end(self) -> bool:
        """End what is left after the end of the orchestration, as ``asyncio.run`` does: cancel its other tasks, and
        close async generators that were not iterated to their end. Their ``finally`` blocks run as the instance, and
        may wait. Return True if nothing is left. Otherwise call it again after the next event."""
        if not self._is_ending:
            self._is_ending = True
            for task in self.tasks:
                task.cancel()
            if self._ready:
                self.run_until_waiting()
        if not self.tasks and self._generators:
            generators, self._generators = self._generators, []
            self._closing = [self.create_task(_close(one), context=context) for one, context in reversed(generators)]
            self.run_until_waiting()
        if self.tasks:
            return False
        for operation in self._operations:
            self.note_unawaited(operation)
        ended = [task for task in self._closing if not task.cancelled()]
        self.errors += [error for task in ended if (error := task.exception()) is not None]
        return True

    def add_operation(self, operation: CoroutineType[Any, Any, Any]) -> None:
        """Note that an operation was called, such as ``send``. It has to be awaited before the end of the instance."""
        self._operations.append(operation)

    def note_unawaited(self, coroutine: CoroutineType[Any, Any, Any]) -> None:
        """Note that a coroutine will never be awaited."""
        place = find_origin(coroutine.cr_origin or ())
        self.unawaited.append(
            NotAwaited(
                f"{coroutine.__qualname__}() was called in {place} and never awaited, so it did nothing.",
                hint=f"Write: await {coroutine.__qualname__}(...). Then apply, and resume the instance.",
            )
        )

    def list_timers(self) -> list[tuple[datetime, int]]:
        """Return when each open timer is due, with its number, the next one first."""
        self._timers = {
            number: (due, handle) for number, (due, handle) in self._timers.items() if not handle.cancelled()
        }
        return sorted((due, number) for number, (due, _) in self._timers.items())

    def fire(self, number: int) -> bool:
        """Schedule the callback of a timer. Return False if there is no such timer."""
        _, handle = self._timers.pop(number, (None, None))
        if handle is None or handle.cancelled():
            return False
        self._ready.append(handle)
        return True

    def find_place(self) -> str:
        """Return the file and the line of the orchestration that runs now. For a task that runs a coroutine of
        Postroom, such as a ``delay`` in ``listen``, it is where the task was created."""
        return mark_place(self._find_unmarked_place())

    def _find_unmarked_place(self) -> str:
        if (place := find_place(boundary=InstanceLoop.run_until_waiting.__code__)) is not None:
            return place
        task = asyncio.current_task(self)
        return self.tasks[task][1] if task in self.tasks else ""

    def discard_callbacks(self) -> None:
        """Let nothing run after the callback that runs now."""
        self._ready.clear()

    def close(self) -> None:
        """End all tasks. Their ``finally`` blocks run now, and cannot do anything as an instance.

        Nothing is left to the garbage collector, which could run them while another instance runs."""
        if self.tasks or self._generators:
            with self._enter(asyncio.AbstractEventLoop()):  # type: ignore[abstract]
                for task, (context, _) in list(self.tasks.items()):
                    _drop(task.get_coro(), context)
                for generator, context in reversed(self._generators):
                    if hasattr(generator.ag_await, "close"):
                        _drop(generator.ag_await, context)
        self.tasks.clear()
        self._generators.clear()
        self._operations.clear()
        self._ready.clear()
        self._timers.clear()

    # -- asyncio -----------------------------------------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        number, due = self.owner.start_timer(max(self.now, self._started_at + timedelta(seconds=when)))
        self._timers[number] = (due, handle)
        return handle

    def time(self) -> float:
        return (self.now - self._started_at).total_seconds()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> asyncio.Task[Any]:
        is_main = not self.tasks
        if not is_main and is_called_by(asyncio.as_completed.__code__):
            coro.close()
            raise StateError(
                "An orchestration cannot pass coroutines to asyncio.as_completed.",
                why="It starts them in an order that differs when the instance is replayed.",
                hint="Use asyncio.TaskGroup or asyncio.gather.",
            )
        context = copy_context() if context is None else context
        self._last_hash += 1
        task: asyncio.Task[Any] = InstanceTask(coro, hash_value=self._last_hash, loop=self, name=name, context=context)
        self.tasks[task] = (context, "" if is_main else self._find_unmarked_place())
        return task

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by a timer that is cancelled. ``list_timers`` removes it."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # An exception of a callback, not of a task. A dropped task that is still pending has no exception.
        if isinstance(error := context.get("exception"), BaseException) and "handle" in context:
            self.errors.append(error)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        raise _make_refusal("threads")

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise _make_refusal("threads")

    def run_until_complete(self, future: Coroutine[Any, Any, _T] | Any) -> Any:
        raise _make_refusal("another event loop")


def _drop(awaited: Any, context: Context) -> None:
    """Close a coroutine, also one that awaits something else when it is closed."""
    for _ in range(_MAX_CLOSES):
        try:
            context.run(awaited.close)
            return
        except BaseException:
            continue


async def _close(generator: AsyncGeneratorType[Any, Any]) -> None:
    await generator.aclose()


def _ignore_freed_generator(generator: AsyncGeneratorType[Any, Any]) -> None:
    """Called instead of running the ``finally`` blocks of an async generator that is freed."""


def _make_refusal(what: str) -> StateError:
    return StateError(
        f"An orchestration cannot use {what}.",
        why="What happens there is not in its journal.",
        hint="Do it in a function, and call that with: await orchestrations.step(function).",
    )


# -- freed objects -----------------------------------------------------------------------------------------------------

_UnawaitedHook = Callable[["CoroutineType[Any, Any, Any]"], None]


class _Hidden(threading.local):
    loop: InstanceLoop | None = None


_hidden = _Hidden()


def _hide_instance(phase: str, _: object) -> None:
    """Called by the garbage collector in its thread, before and after it frees objects."""
    if phase == "start":
        loop = asyncio._get_running_loop()
        if isinstance(loop, InstanceLoop):
            _hidden.loop = loop
            asyncio._set_running_loop(None)
    elif _hidden.loop is not None:
        asyncio._set_running_loop(_hidden.loop)
        _hidden.loop = None


def _make_hook(warn: _UnawaitedHook) -> _UnawaitedHook:
    def handle_unawaited(coroutine: CoroutineType[Any, Any, Any]) -> None:
        loop = asyncio._get_running_loop()
        if isinstance(loop, InstanceLoop):
            loop.note_unawaited(coroutine)
        elif len(coroutine.cr_origin or ()) != _ORIGIN_DEPTH:
            warn(coroutine)
        # Otherwise it was created by an instance that was dropped.

    return handle_unawaited


@cache
def install_hooks() -> None:
    """Install what handles freed objects, once in a process."""
    gc.callbacks.append(_hide_instance)
    # The interpreter looks this function up whenever it frees a coroutine that has not begun.
    warnings._warn_unawaited_coroutine = _make_hook(warnings._warn_unawaited_coroutine)  # type: ignore[attr-defined]
