"""Calls in steps: a call that has to wait yields the seconds, and its caller decides how to wait.

def publish_in_steps() -> Steps[Published]:
    yield 0.5
    return published

run_steps(publish_in_steps())                       # waits in this thread
await run_steps_in_threads(publish_in_steps())      # holds no thread while it waits
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, TypeVar

R = TypeVar("R")

#: Yields the seconds to wait before the next step, and returns the result of the call.
Steps = Generator[float, None, R]


def run_steps(steps: Steps[R]) -> R:
    """Run a call, and wait between its steps."""
    while True:
        pause, end = _run_step(steps)
        if end is not None:
            result: R = end.value
            return result
        time.sleep(pause)


async def run_steps_in_threads(steps: Steps[R]) -> R:
    """Run each step of a call in a thread, and wait between them on the event loop."""
    while True:
        pause, end = await asyncio.to_thread(_run_step, steps)
        if end is not None:
            result: R = end.value
            return result
        await asyncio.sleep(pause)


def _run_step(steps: Steps[Any]) -> tuple[float, StopIteration | None]:
    try:
        return next(steps), None
    except StopIteration as end:
        return 0.0, end
