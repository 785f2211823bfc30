"""Run what is configured: the receive locations of a host or a pipeline process, or the listeners for HTTP."""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, Protocol, TypeVar

_log = logging.getLogger(__name__)


class Running(ABC):
    """A receive location or a listener that was started."""

    #: The time of the monotonic clock until which ``stop`` may finish what was taken in. It may change during ``stop``.
    finish_by = 0.0

    @abstractmethod
    def stop(self) -> None:
        """Take no more input, finish what was taken in, and end."""


class Named(Protocol):
    @property
    def name(self) -> str: ...


Definition = TypeVar("Definition", bound=Named)
AnyRunning = TypeVar("AnyRunning", bound=Running)


class LocationRunner(Generic[Definition, AnyRunning]):
    """Starts, restarts and stops what is configured. Only one thread changes it.

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
        self.running: dict[Hashable, AnyRunning] = {}
        self.stopping: dict[Hashable, tuple[AnyRunning, threading.Thread]] = {}
        #: Why something that is configured does not run.
        self.problems: dict[Hashable, str] = {}
        self._definitions: dict[Hashable, Definition] = {}

    def apply(self, wanted: Mapping[Hashable, Definition]) -> bool:
        """Run these from now on. Return False if something has not stopped or cannot be started yet."""
        self.problems = {key: problem for key, problem in self.problems.items() if key in wanted}
        for key in list(self.running):
            if wanted.get(key) != self._definitions[key]:
                self._stop(key, self._finish_within)
        self.join(self._stop_seconds)
        for key, definition in wanted.items():
            if key not in self.running and key not in self.stopping:
                try:
                    self.running[key] = self._start(definition)
                except Exception as error:  # an adapter can raise anything
                    self.warn(key, f"{definition.name} cannot be started: {str(error) or type(error).__name__}")
                else:
                    self._definitions[key] = definition
                    self.problems.pop(key, None)
        return self.running.keys() == wanted.keys() and not self.stopping

    def warn(self, key: Hashable, problem: str) -> None:
        """Keep a problem, and log it once."""
        problem = " ".join(problem.split())
        if self.problems.get(key) != problem:
            _log.warning("%s", problem)
        self.problems[key] = problem

    def stop(self, within: float) -> None:
        """Stop everything. What was taken in may be finished within so many seconds."""
        for key in list(self.running):
            self._stop(key, within)
        for running, _ in self.stopping.values():
            running.finish_by = time.monotonic() + within

    def join(self, timeout: float | None = None) -> None:
        """Wait for what is stopping, but no longer than the timeout."""
        deadline = time.monotonic() + (timeout or 0.0)
        for key, (running, thread) in list(self.stopping.items()):
            thread.join(None if timeout is None else max(0.0, deadline - time.monotonic()))
            if not thread.is_alive():
                del self.stopping[key]
                self._on_stopped(running)
                _log.info("%s: no longer receiving", self._definitions.pop(key).name)

    def _stop(self, key: Hashable, within: float) -> None:
        """Stop it in a separate thread, so that nothing else waits for it."""
        running = self.running.pop(key)
        running.finish_by = time.monotonic() + within
        name = self._definitions[key].name
        thread = threading.Thread(target=_stop_running, args=(name, running), name=f"stop {name}", daemon=True)
        self.stopping[key] = (running, thread)
        thread.start()


def _stop_running(name: str, running: Running) -> None:
    try:
        running.stop()
    except Exception:  # an adapter can raise anything
        _log.exception("%s: an error occurred while it was stopped", name)
