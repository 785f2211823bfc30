"""Wait for a condition. Tests never wait for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Timeout in seconds. It is long enough for the slowest machine.
PATIENCE = 600


def wait_until(condition: Callable[[], T], timeout: float = PATIENCE, *, what: str = "") -> T:
    """Call `condition` until its result is true, and return the result. Fail after `timeout` seconds.

    >>> wait_until(lambda: list(out.glob("*.json")), what="a file in out")
    """
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        started = time.monotonic()
        result = condition()
        if result:
            return result
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"waited {timeout} s for {what or condition}; the last result was {result!r}")
        # A slow condition is called less often, so that it does not take the processor from the awaited work.
        time.sleep(max(pause, min(4 * (now - started), 1)))
        pause = min(pause * 1.5, 0.1)
