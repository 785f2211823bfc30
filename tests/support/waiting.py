"""Tests wait for what they expect, not for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds until a test gives up. Nothing that works takes so long, on however slow a machine.
PATIENCE = 600


def wait_until(condition: Callable[[], T], timeout: float = PATIENCE, *, what: str = "") -> T:
    """Ask `condition` until its answer is true, and return that answer; fail after `timeout` seconds.

    >>> wait_until(lambda: list(out.glob("*.json")), what="a file in out")
    """
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        asked = time.monotonic()
        answer = condition()
        if answer:
            return answer
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"waited {timeout} s for {what or condition}; the last answer was {answer!r}")
        # What is waited for needs the processor more than a question that takes long.
        time.sleep(max(pause, min(4 * (now - asked), 1)))
        pause = min(pause * 1.5, 0.1)
