"""The event loop of one instance: asyncio without threads, sockets and a clock.

Callbacks run in the order in which they were scheduled, so a replay runs them in the same order. The time changes only
with an event, and timers fire only when the instance gets an event for them. So ``asyncio.sleep``,
``asyncio.timeout``, ``asyncio.gather`` and task groups work in an orchestration, and survive a restart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, copy_context
from datetime import datetime, timedelta
from typing import Any, TypeVar

from postroom.errors import StateError
from postroom.orchestrations.code_places import find_place
from postroom.orchestrations.compensations import mark_place

_T = TypeVar("_T")

#: How often a coroutine may await something else when it is closed.
_MAX_CLOSES = 100


class InstanceLoop(asyncio.AbstractEventLoop):
    """The callbacks and timers of an instance. ``owner`` is the execution that the loop belongs to. It numbers the
    timers."""

    def __init__(self, started_at: datetime, owner: Any) -> None:
        self.owner = owner
        self.now = started_at
        #: The tasks that are not done, each with its context and the place that created it.
        self.tasks: dict[asyncio.Task[Any], tuple[Context, str]] = {}
        self.errors: list[BaseException] = []
        self._started_at = started_at
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: dict[int, tuple[datetime, asyncio.TimerHandle]] = {}

    def run_until_waiting(self) -> None:
        """Run callbacks until every task waits for an event."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                try:
                    if not handle.cancelled():
                        handle._run()
                except (SystemExit, KeyboardInterrupt):
                    # asyncio raises these two, after it has stored them in their task. They must not end the thread.
                    continue
        finally:
            asyncio._set_running_loop(before)
            self.tasks = {task: origin for task, origin in self.tasks.items() if not task.done()}

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
        if (place := find_place(boundary=InstanceLoop.run_until_waiting.__code__)) is not None:
            return mark_place(place)
        task = asyncio.current_task(self)
        return mark_place(self.tasks[task][1]) if task in self.tasks else ""

    def discard_callbacks(self) -> None:
        """Let nothing run after the callback that runs now."""
        self._ready.clear()

    def close(self) -> None:
        """End all tasks. Their ``finally`` blocks run now, and cannot do anything as an instance.

        Nothing is left to the garbage collector, which could run them while another instance runs."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            for task, (context, _) in list(self.tasks.items()):
                coroutine = task.get_coro()
                for _ in range(_MAX_CLOSES):
                    try:
                        context.run(coroutine.close)
                        break
                    except BaseException:
                        continue
        finally:
            asyncio._set_running_loop(before)
        self.tasks.clear()
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
        context = copy_context() if context is None else context
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        # The first task is the orchestration itself.
        self.tasks[task] = (context, self.find_place() if self.tasks else "")
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


def _make_refusal(what: str) -> StateError:
    return StateError(
        f"An orchestration cannot use {what}.",
        why="What happens there is not in its journal.",
        hint="Do it in a function, and call that with: await orchestrations.step(function).",
    )
