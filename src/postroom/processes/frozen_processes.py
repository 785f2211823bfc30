"""Kill processes that are frozen (SIGSTOP), so that their parent restarts them.

A frozen process does not answer and does not end. A process that a debugger has stopped does not count as frozen. A
process in which a call outside of Python keeps the interpreter lock does not answer either, but only the process itself
can detect that.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import psutil

from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)

_POLL_SECONDS = 2.0
_FROZEN_SECONDS = 5.0
_STANDARD_ERROR = 2


class FrozenProcesses:
    """Kills processes that stay frozen. It records since when each process is frozen."""

    def __init__(self, after: float = _FROZEN_SECONDS) -> None:
        self._after = after
        self._frozen_since: dict[psutil.Process, float] = {}

    def kill(self, pids: Iterable[int]) -> list[int]:
        """Kill the processes that have been frozen for at least ``after`` seconds. Return their ids."""
        now = time.monotonic()
        frozen = [process for process in map(_find_frozen, pids) if process is not None]
        self._frozen_since = {process: self._frozen_since.get(process, now) for process in frozen}
        killed = [process for process in frozen if now - self._frozen_since[process] >= self._after]
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return [process.pid for process in killed]


@contextmanager
def kill_frozen_children(after: float = _FROZEN_SECONDS) -> Iterator[None]:
    """Kill frozen descendants of this process during the block."""
    frozen = FrozenProcesses(after)
    this_process = psutil.Process(os.getpid())

    def step() -> float:
        for pid in frozen.kill(child.pid for child in this_process.children(recursive=True)):
            _log.warning("process %d was frozen and has been killed", pid)
        return min(_POLL_SECONDS, after)

    with _repeat("frozen children", step):
        yield


@contextmanager
def end_blocked_process(after: float) -> Iterator[None]:
    """End this process during the block if no thread can run Python for ``after`` seconds, because a call keeps the
    interpreter lock. The tracebacks of all threads are written to standard error."""

    def step() -> float:
        # A timer without Python. It is started again before it is over, unless the interpreter lock is taken.
        faulthandler.dump_traceback_later(after, exit=True, file=_STANDARD_ERROR)
        return after / 10

    try:
        with _repeat("interpreter lock", step):
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def _repeat(name: str, step: Callable[[], float]) -> Iterator[None]:
    """Run a background loop during the block."""
    loop = BackgroundLoop(name, step)
    loop.start()
    try:
        yield
    finally:
        loop.stop()
        loop.join()


def _find_frozen(pid: int) -> psutil.Process | None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_STOPPED:
            return process
    return None
