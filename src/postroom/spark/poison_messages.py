"""Isolate messages that kill a Spark worker.

A segmentation fault, an out-of-memory kill or a hung C extension ends the worker without an exception. When Spark
retries the task, every message is processed alone, and the attempt is recorded in the MessageBox first. A message that
was attempted MAX_ATTEMPTS times without finishing is suspended instead of being tried again (ADR 0029).

    with guard_worker(timeout=300) as is_retry:
        ...
        attempt_alone(login, record=..., undo=..., process=..., suspend=...)
"""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import UnsupportedOperation
from typing import TypeVar

from postroom.errors import MessageFailure, PostroomError, Unavailable
from postroom.messagebox.connection import Connection, Login
from postroom.time_limit import count_abandoned_threads

_T = TypeVar("_T")
_Failure = TypeVar("_Failure", bound=MessageFailure)

#: A message may kill this many workers that process it alone.
MAX_ATTEMPTS = 2
#: A worker with more abandoned threads than this is replaced.
MAX_LEAKED_THREADS = 8
#: A worker is killed this many seconds after the time limit of one call.
GRACE = 30.0

_HEARTBEAT_SECONDS = 5.0


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


def attempt_alone(
    login: Login,
    *,
    record: Callable[[], int],
    undo: Callable[[Connection], None],
    process: Callable[[], _T],
    suspend: Callable[[], _T],
) -> _T:
    """Process one message, or suspend it if it has already killed MAX_ATTEMPTS workers.

    ``record`` commits a new attempt and returns how many there are now. ``undo`` removes it again after an exception,
    because the worker has survived; it gets a new connection, because the worker's own may be broken.
    """
    if record() > MAX_ATTEMPTS:
        return suspend()
    try:
        return process()
    except MemoryError:
        raise  # the next attempt may kill the worker
    except Exception:
        with suppress(PostroomError), login.connect("attempts") as connection:
            undo(connection)
        raise


def worker_death(failure: type[_Failure], *, hint: str) -> _Failure:
    """Return the failure of a message that killed every worker that processed it."""
    return failure(
        "The worker that processed it died at every attempt.",
        why="A worker dies if a library crashes, if it runs out of memory, or if it does not respond for longer than"
        " the time limit of the pipeline or map. The log of the pipeline may show the cause.",
        hint=hint,
    )


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
    """Inside, this process is killed if its interpreter does not run for ``timeout`` seconds. Not for longer: a later
    task of this worker may belong to a pipeline that records no attempts."""
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
