"""How many a second, of late."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_WINDOW = 10.0


class Rate:
    """Counts over the last ten seconds. Used by several threads: a deque is safe for that."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._started = monotonic()
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        self._counts.append((self._monotonic(), count))

    def per_second(self) -> float:
        """Over the window, or since the start if that is shorter; rounded, so that it settles."""
        now = self._monotonic()
        while self._counts and self._counts[0][0] < now - _WINDOW:
            self._counts.popleft()
        elapsed = max(1.0, min(_WINDOW, now - self._started))
        return round(sum(count for _, count in tuple(self._counts)) / elapsed, 1)
