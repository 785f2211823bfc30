"""Compares incoming with outgoing messages in windows (THR-03)."""

from __future__ import annotations

import time
from collections.abc import Callable

from postroom.throttling.states import Limit, ThrottleState

#: The length of the window in which incoming and outgoing messages are compared, in seconds.
RATE_WINDOW = 15.0
#: A window with fewer incoming messages is not evaluated.
MIN_SAMPLES = 100


def get_rate_limit(state: ThrottleState, incoming: int, outgoing: int, *, overdrive: float, what: str) -> Limit:
    """Return the limit of a rate: ``overdrive`` percent of what went out in the same window."""
    has_samples = overdrive and incoming >= MIN_SAMPLES
    threshold = max(1.0, outgoing * overdrive / 100) if has_samples else 0.0
    return Limit(state=state, value=incoming, threshold=threshold, what=f"{what} in {RATE_WINDOW:.0f} s")


class RateWindow:
    """Counts incoming and outgoing messages in one window after the other."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = clock()
        self._totals = (0, 0)
        #: What came in and went out in the last complete window.
        self.counts = (0, 0)

    def update(self, incoming: int, outgoing: int) -> None:
        """Take the totals since the start. Call this more often than once in a window."""
        now = self._clock()
        if now < self._started_at + RATE_WINDOW:
            return
        self.counts = (incoming - self._totals[0], outgoing - self._totals[1])
        self._totals = (incoming, outgoing)
        self._started_at = now
