"""Run what is configured: the receive locations of a host or a pipeline process, or the listeners for HTTP."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)


class Running:
    """A receive location or a listener that was started."""

    #: The time of the monotonic clock until which ``stop`` may finish what was taken in. It may change during ``stop``.
    finish_by = 0.0

    def stop(self) -> None:
        """Take no more input, finish what was taken in, and end."""
        raise NotImplementedError


Definition = TypeVar("Definition")
AnyRunning = TypeVar("AnyRunning", bound=Running)


class LocationRunner(Generic[Definition, AnyRunning]):
    """Starts, restarts and stops what is configured, by name. Only one thread changes it.

    ``start`` raises an error if it cannot start what is defined; it is called again by the next ``apply``. What is
    stopped may finish what it has taken in within ``finish_within`` seconds. ``apply`` waits for it for
    ``stop_seconds``, before it starts anything.
    """

    def __init__(
        self,
        start: Callable[[Definition], AnyRunning],
        *,
        stop_seconds: float = 0.0,
        finish_within: float = math.inf,
        on_stopped: Callable[[AnyRunning], None] = lambda running: None,
    ) -> None:
        self._start = start
        self._stop_seconds = stop_seconds
        self._finish_within = finish_within
        self._on_stopped = on_stopped
        self.running: dict[str, AnyRunning] = {}
        self.stopping: dict[str, tuple[AnyRunning, threading.Thread]] = {}
        #: Why something that is configured does not run.
        self.problems: dict[str, str] = {}
        self._definitions: dict[str, Definition] = {}

    def apply(self, wanted: Mapping[str, Definition]) -> bool:
        """Run these from now on. Return False if something has not stopped or cannot be started yet."""
        self.problems = {name: problem for name, problem in self.problems.items() if name in wanted}
        for name in list(self.running):
            if wanted.get(name) != self._definitions[name]:
                self._stop(name, self._finish_within)
        self.join(self._stop_seconds)
        for name, definition in wanted.items():
            if name not in self.running and name not in self.stopping:
                try:
                    self.running[name] = self._start(definition)
                except Exception as error:  # an adapter can raise anything
                    self.warn(name, f"{name} cannot be started: {str(error) or type(error).__name__}")
                else:
                    self._definitions[name] = definition
                    self.problems.pop(name, None)
        return self.running.keys() == wanted.keys() and not self.stopping

    def warn(self, name: str, problem: str) -> None:
        """Keep a problem, and log it once."""
        problem = " ".join(problem.split())
        if self.problems.get(name) != problem:
            _log.warning("%s", problem)
        self.problems[name] = problem

    def stop(self, within: float) -> None:
        """Stop everything. What was taken in may be finished within so many seconds."""
        for name in list(self.running):
            self._stop(name, within)
        for running, _ in self.stopping.values():
            running.finish_by = time.monotonic() + within

    def join(self, timeout: float | None = None) -> None:
        """Wait for what is stopping, but no longer than the timeout."""
        deadline = time.monotonic() + (timeout or 0.0)
        for name, (running, thread) in list(self.stopping.items()):
            thread.join(None if timeout is None else max(0.0, deadline - time.monotonic()))
            if not thread.is_alive():
                del self.stopping[name]
                self._on_stopped(running)
                _log.info("%s: no longer receiving", name)

    def _stop(self, name: str, within: float) -> None:
        """Stop it in a separate thread, so that nothing else waits for it."""
        running = self.running.pop(name)
        running.finish_by = time.monotonic() + within
        thread = threading.Thread(target=_stop_running, args=(name, running), name=f"stop {name}", daemon=True)
        self.stopping[name] = (running, thread)
        thread.start()


def _stop_running(name: str, running: Running) -> None:
    try:
        running.stop()
    except Exception:  # an adapter can raise anything
        _log.exception("%s: an error occurred while it was stopped", name)
