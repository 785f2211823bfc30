"""A background thread that repeats one step until it is stopped.

loop = BackgroundLoop("jobs", step)        # step() returns the seconds to wait before the next step
loop.start()
loop.wake()                                # do not wait any longer
loop.stop()
loop.join(timeout=5)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from postroom.errors import PostroomError
from postroom.processes.backoff import Backoff

_log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=0.05, longest=5.0)
#: Errors of the environment. A line in the log is enough; every other error is logged with its traceback.
_EXPECTED = (PostroomError, OSError)


class BackgroundLoop:
    """Calls ``step`` again and again, and waits in between for as many seconds as it returned.

    A step that raises is logged and called again after a backoff. An error that comes again is logged once, until a
    step succeeds. ``interrupt`` is called by ``stop``; it ends a wait inside the step.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        *,
        backoff: Backoff = _BACKOFF,
        interrupt: Callable[[], None] | None = None,
    ) -> None:
        self._step = step
        self._backoff = backoff
        self._interrupt = interrupt
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def wake(self) -> None:
        """Cut the wait between two steps short. A backoff is not cut short."""
        self._wake.set()

    def stop(self) -> None:
        """Ask the loop to end after the current step."""
        # In this order: the loop looks at the first after it has cleared the second.
        self._stopping.set()
        self._wake.set()
        if self._interrupt is not None:
            self._interrupt()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread. Return False if it is still alive after the timeout."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures, logged = 0, ""
        while True:
            # Before the step, so that a wake-up during the step is not lost.
            self._wake.clear()
            if self.stopping:
                return
            try:
                delay = self._step()
            except Exception as error:
                if self.stopping:
                    return
                failures += 1
                self._log(error, again=logged == repr(error))
                logged = repr(error)
                self._stopping.wait(self._backoff.delay(failures))
                continue
            failures, logged = 0, ""
            if delay > 0:
                self._wake.wait(delay)

    def _log(self, error: Exception, *, again: bool) -> None:
        if isinstance(error, _EXPECTED):
            level = logging.DEBUG if again else logging.WARNING
            _log.log(level, "%s: %s", self._thread.name, " ".join(str(error).split()))
        else:
            _log.log(logging.DEBUG if again else logging.ERROR, "%s failed", self._thread.name, exc_info=error)
