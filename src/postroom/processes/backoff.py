"""Exponential backoff: how long to wait before something that failed is tried again.

delay = Backoff(first=0.5, longest=30.0).delay(failures)
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from postroom.errors import Unavailable

T = TypeVar("T")

#: Larger exponents change nothing, and would overflow a float in the end.
_MOST_DOUBLINGS = 64


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Delays in seconds that double from ``first`` up to ``longest``."""

    first: float
    longest: float

    def delay(self, failures: int) -> float:
        """Return the delay after this many failures in a row: no delay after none, about ``first`` after one.

        Up to half of the delay is taken off at random, so that processes that failed together do not retry together.
        """
        if failures < 1:
            return 0.0
        doublings = min(failures - 1, _MOST_DOUBLINGS)
        return float(min(self.first * 2**doublings, self.longest) * random.uniform(0.5, 1.0))


_UNAVAILABLE = Backoff(first=0.1, longest=5.0)
_RETRIES = 8


def retry_while_unavailable(store: Callable[[], T]) -> T:
    """Return what ``store`` returns. A MessageBox that is unavailable is tried again for some seconds, because what
    ``store`` records has happened already, and would happen again."""
    failures = 0
    while True:
        try:
            return store()
        except Unavailable:
            failures += 1
            if failures > _RETRIES:
                raise
            time.sleep(_UNAVAILABLE.delay(failures))
