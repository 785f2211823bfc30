"""Tests wait for what they expect, not for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 10.0, *, what: str = "") -> T:
    """Ask `condition` until its answer is true, and return that answer; fail after `timeout` seconds.

    >>> wait_until(lambda: list(out.glob("*.json")), what="a file in out")
    """
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what or condition}; the last answer was {answer!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
