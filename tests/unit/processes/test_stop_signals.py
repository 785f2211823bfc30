"""A stop signal can arrive at any time, also while the main thread waits."""

from __future__ import annotations

import signal
import threading

import pytest

from postroom.processes.stop_signals import set_on_stop_signals
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_wait_does_not_deadlock(number: signal.Signals) -> None:
    """The handler runs in the main thread, which may hold the lock of the event."""
    stopping = threading.Event()
    before = signal.getsignal(number)
    lock = stopping._cond  # type: ignore[attr-defined]
    with set_on_stop_signals(stopping):
        with lock:
            signal.raise_signal(number)
        assert stopping.wait(PATIENCE)
    assert signal.getsignal(number) is before
