"""The Python worker that runs the tasks of Spark: what it keeps from one task to the next, and its guard against
messages that kill it.

A worker keeps a connection, a routing table and the entries of lookups. This is module-level state, because Spark has
no other place for it: a worker runs many tasks, one at a time, and each of them would connect and load all
subscriptions. A worker is forked before this module is imported, so that no two workers share a connection.

A hung C extension ends a worker without an exception, as a crash does. When Spark retries the task, every message is
processed alone (agent/poison_messages.py).

    with guard_worker(timeout=300) as is_retry:
        worker = get_worker(login)
        ...
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from io import UnsupportedOperation

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import Unavailable
from postroom.lookups.cache import LookupCache
from postroom.lookups.source import add_source, remove_source
from postroom.messagebox.connection import Login, is_working
from postroom.monitoring.logs import LOG_FORMAT_VARIABLE, LogFormat, set_up_logging
from postroom.processes.garbage_collection import freeze_objects
from postroom.processes.time_limit import count_abandoned_threads
from postroom.receiving.task import Worker

#: A worker with more abandoned threads than this is replaced.
MAX_LEAKED_THREADS = 8
#: A worker is killed this many seconds after the time limit of one call.
GRACE = 30.0

_HEARTBEAT_SECONDS = 5.0


_workers: dict[Login, Worker] = {}
_lookups: dict[Login, LookupCache] = {}


def get_worker(login: Login) -> Worker:
    """Return the connection and the receiver of this process. Connect again if the connection has died since the last
    task."""
    worker = _workers.get(login)
    if worker is not None and not worker.connection.closed and is_working(worker.connection):
        return worker
    # Workers log to the same place as the driver, so in the same format.
    set_up_logging(LogFormat(os.environ.get(LOG_FORMAT_VARIABLE, "text")), logging.WARNING)
    for other in list(_workers):
        close_worker(other)
    connection = login.connect("receive")
    routing = RoutingTable()
    routing.catch_up(connection)
    worker = Worker(
        connection=connection, receiver=Receiver(connection, routing), connect=partial(login.connect, "attempts")
    )
    _workers[login] = worker
    provide_lookups(login)
    freeze_objects()
    return worker


def provide_lookups(login: Login) -> None:
    """Let components and maps of this process read lookups."""
    if login not in _lookups:
        cache = _lookups[login] = LookupCache(partial(login.connect, "lookups"))
        add_source(cache)


def close_worker(login: Login) -> None:
    """Close the connections of this process, so that the next task connects again."""
    worker = _workers.pop(login, None)
    if worker is not None:
        worker.connection.close()
    cache = _lookups.pop(login, None)
    if cache is not None:
        remove_source(cache)
        cache.close()


@lru_cache(maxsize=1)
def freeze_modules() -> None:
    """Freeze the modules of a worker that keeps nothing else, at its first task."""
    freeze_objects()


@contextmanager
def guard_worker(timeout: float) -> Iterator[bool]:
    """Kill this worker if its interpreter makes no progress for ``timeout`` seconds. Yield True on a retry of a failed
    task. Outside a Spark task, do nothing and yield False."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        yield False
        return
    fail_if_threads_leaked()
    with kill_if_frozen(timeout):
        yield context.attemptNumber() > 0


def fail_if_threads_leaked() -> None:
    """Raise Unavailable if earlier tasks have abandoned too many threads in this worker. Spark starts a new worker."""
    threads = count_abandoned_threads()
    if threads > MAX_LEAKED_THREADS:
        raise Unavailable(
            f"This worker has {threads} abandoned threads that are still running.",
            why="Each of them keeps a message in memory and may keep a core busy.",
            hint="Nothing has to be done. Spark starts a new worker.",
        )


@contextmanager
def kill_if_frozen(timeout: float) -> Iterator[None]:
    """Inside, this process is killed if its interpreter does not run for ``timeout`` seconds. Only inside: a later task
    of this worker may record no attempts, so it could be killed for ever."""
    _watchdog().set_timeout(timeout)
    try:
        yield
    finally:
        _watchdog().set_timeout(None)


class _Watchdog:
    """A thread that keeps postponing an alarm of the operating system.

    C code that does not release the interpreter (a regular expression with catastrophic backtracking) cannot be
    interrupted by a thread. But it also keeps this thread from postponing the alarm, and SIGALRM ends the process.
    """

    def __init__(self) -> None:
        self._timeout: float | None = None
        self._lock = threading.Lock()
        self._changed = threading.Event()
        with suppress(UnsupportedOperation, RuntimeError, ValueError):
            # Writes the stack of the hung call to the log of the worker. It does not need the interpreter for that.
            faulthandler.register(signal.SIGALRM, chain=True)
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def set_timeout(self, timeout: float | None) -> None:
        with self._lock:
            self._timeout = timeout
            # Here, too: the thread may not run before the interpreter hangs.
            self._set_alarm()
        self._changed.set()

    def _set_alarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._timeout or 0.0)  # 0 switches the alarm off

    def _run(self) -> None:
        while True:
            self._changed.clear()
            with self._lock:
                timeout = self._timeout
                self._set_alarm()
            self._changed.wait(min(_HEARTBEAT_SECONDS, timeout / 3) if timeout else None)


@lru_cache(maxsize=1)
def _watchdog() -> _Watchdog:
    return _Watchdog()
