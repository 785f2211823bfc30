"""Handle SIGTERM and SIGINT by setting an event."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def set_on_stop_signals(stopping: threading.Event) -> Iterator[None]:
    """Within this context SIGTERM and SIGINT set the event. No effect outside the main thread, which handles
    signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        # In another thread, because the interrupted main thread may hold the event's lock.
        threading.Thread(target=stopping.set, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
