"""A process is told to stop by a signal, which may come at any moment."""

from __future__ import annotations

import signal
import threading

import pytest

from postroom.stop_signals import set_on_stop_signals
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_waiting_does_not_stop_the_process_for_ever(number: signal.Signals) -> None:
    """The handler runs in the main thread, which may hold the event's lock; setting it there would never end."""
    stopping = threading.Event()
    before = signal.getsignal(number)
    lock = stopping._cond  # type: ignore[attr-defined]
    with set_on_stop_signals(stopping):
        with lock:
            signal.raise_signal(number)
        assert stopping.wait(PATIENCE)
    assert signal.getsignal(number) is before
