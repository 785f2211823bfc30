"""Ends a worker whose interpreter does not come back.

Code of C that keeps the interpreter to itself (a regular expression that goes back for ever) cannot be given up by any
thread of its process, since none of them runs. But a thread that winds up an alarm clock every few seconds does not run
either: the clock rings, and the operating system ends the process. Who began is noted elsewhere (ADR 0135).
"""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import UnsupportedOperation

_EVERY = 5.0
#: A clock that is wound up for no time does not ring.
_OFF = 0.0


class Heartbeat:
    """Beats from a thread of its own, for as long as its process runs. Only for processes that may be ended."""

    def __init__(self) -> None:
        #: The longest time without a beat.
        self._seconds = _OFF
        self._lock = threading.Lock()
        self._changed = threading.Event()
        with suppress(UnsupportedOperation, RuntimeError, ValueError):
            # Says in the log of the worker where it was, before it ends; without the interpreter's help.
            faulthandler.register(signal.SIGALRM, chain=True)
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def change(self, seconds: float) -> None:
        """From now on: the thread may not come to its next beat any more."""
        with self._lock:
            self._seconds = seconds
            self._wind_up()
        self._changed.set()

    def _wind_up(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def _beat(self) -> None:
        while True:
            self._changed.clear()
            with self._lock:
                seconds = self._seconds
                self._wind_up()
            self._changed.wait(min(_EVERY, seconds / 3) if seconds else None)


@lru_cache(maxsize=1)
def _heartbeat() -> Heartbeat:
    return Heartbeat()


@contextmanager
def ended_if_silent(seconds: float) -> Iterator[None]:
    """Inside, this process, a worker of Spark, ends when its interpreter does not run for so many seconds. The next
    task of the worker may be of another pipeline, or of none: nobody would note then who had ended it."""
    _heartbeat().change(seconds)
    try:
        yield
    finally:
        _heartbeat().change(_OFF)
