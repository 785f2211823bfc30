"""SIGTERM and SIGINT as an event that a process waits for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Inside, both signals set the event. Only in the main thread, which alone may handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        # Not here: the main thread may be inside the event's own lock at this moment.
        threading.Thread(target=stopping.set, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
