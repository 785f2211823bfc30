"""A thread that repeats one step until it is told to stop."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

import psycopg

from postroom.errors import PostroomError

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


class Loop:
    """Repeats ``step``. A step that fails is logged and tried again, after a pause that doubles while it keeps failing.

    ``interrupt`` ends whatever ``step`` may be waiting for, so that a stop is not waited for.
    """

    def __init__(self, name: str, step: Callable[[], None], *, interrupt: Callable[[], None] = lambda: None) -> None:
        self._step = step
        self._interrupt = interrupt
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Asks it to stop after the step that is under way."""
        self._stopping.set()
        self._interrupt()

    def join(self, timeout: float | None = None) -> bool:
        """Waits for its end; False if it has not ended in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self.stopping:
            try:
                self._step()
                pause = _FIRST_PAUSE
            except Exception as error:
                if self.stopping:
                    break
                _say(self._thread.name, error)
                self._stopping.wait(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)


def _say(name: str, error: Exception) -> None:
    if isinstance(error, psycopg.OperationalError | PostroomError):
        _log.warning("%s: %s", name, str(error).strip().replace("\n", " "))
    else:
        _log.error("%s failed", name, exc_info=error)
