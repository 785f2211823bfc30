"""The event loop of the HTTP servers of a process, and the threads that work for it. Sends wait on a loop of their own.

    loop, workers = EventLoopThread(), WorkerPool(threads=10, max_waiting=1_000)
    loop.run(coroutine())                    # from any other thread
    loop.start(coroutine_function, argument)
    await workers.run(function, argument)    # on the event loop

The engine is synchronous, so that a handler of requests calls it from a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from postroom.http.messages import RequestFailed

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 1

T = TypeVar("T")


class EventLoopThread:
    """An asyncio event loop in a thread of its own. The thread starts with the first call of ``run``."""

    def __init__(self, name: str = "http") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the event loop and return its result. Do not call this on the event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._get_loop()).result()

    def start(self, function: Callable[..., Coroutine[Any, Any, object]], *arguments: object) -> None:
        """Run a coroutine on the event loop, and return at once. Raise RuntimeError if there can be no thread."""
        loop = self._get_loop()
        asyncio.run_coroutine_threadsafe(function(*arguments), loop)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
            return self._loop

    def close(self) -> None:
        """Cancel everything that runs on the event loop, and end its thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            for task in (tasks := asyncio.all_tasks(loop)):
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
        finally:
            loop.close()


class WorkerPool:
    """Threads that run synchronous functions for the event loop.

    ``threads`` is the maximum number of threads. They start when they are needed. ``max_waiting`` is the number of
    waiting calls above which no new request should be admitted.
    """

    def __init__(self, *, threads: int, max_waiting: int) -> None:
        self._max_threads = threads
        self._max_calls = threads + max_waiting
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._calls = 0

    def check_capacity(self) -> None:
        """Raise RequestFailed if too many calls are waiting. Call this before the body of a request is read."""
        if self._calls >= self._max_calls:
            raise build_capacity_error()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of a call in a worker thread. Raise RequestFailed if there is no thread."""
        with self._lock:
            self._calls += 1
            needs_thread = self._calls > self._threads and self._threads < self._max_threads
        if needs_thread:
            self._start_thread()
        future: Future[T] = Future()
        self._queue.put((future, lambda: function(*arguments)))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads after the calls in progress."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _start_thread(self) -> None:
        # A daemon: a call that hangs must not keep the process from ending.
        thread = threading.Thread(target=self._work, name="http worker", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _log.warning("a worker thread could not be started: %s", error)
            with self._lock:
                if self._threads == 0:
                    self._calls -= 1
                    raise build_capacity_error() from None
            return
        with self._lock:
            self._threads += 1

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            self._run_call(*call)
            del call  # it may hold the body of a request

    def _run_call(self, future: Future[Any], function: Callable[[], Any]) -> None:
        error: BaseException | None = None
        result = None
        if is_wanted := future.set_running_or_notify_cancel():
            try:
                result = function()
            except BaseException as raised:
                error = raised
        with self._lock:
            self._calls -= 1
        if error is not None:
            future.set_exception(error)
        elif is_wanted:
            future.set_result(result)


def build_capacity_error() -> RequestFailed:
    """Return the 503 of a request that comes while too many others are waiting."""
    return RequestFailed(503, "There are too many requests at the moment.", {"Retry-After": str(_RETRY_SECONDS)})
