"""A stop signal can arrive at any time and in any thread, also while the main thread waits."""

from __future__ import annotations

import signal
import threading

import pytest

from postroom.processes.stop_signals import set_on_stop_signals
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_wait_does_not_deadlock(number: signal.Signals) -> None:
    """The main thread may hold the lock of the event."""
    stopping = threading.Event()
    before = signal.getsignal(number)
    lock = stopping._cond  # type: ignore[attr-defined]
    with set_on_stop_signals(stopping):
        with lock:
            signal.raise_signal(number)
        assert stopping.wait(PATIENCE)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_another_thread_receives_ends_the_wait_of_the_main_thread(number: signal.Signals) -> None:
    """The kernel chooses any thread if the main thread has a signal to handle already, such as SIGCONT."""
    stopping, is_waiting = threading.Event(), threading.Event()

    def receive() -> None:
        is_waiting.wait()
        signal.pthread_kill(threading.get_ident(), number)

    other = threading.Thread(target=receive)
    other.start()
    with set_on_stop_signals(stopping):
        threading.Timer(0.1, is_waiting.set).start()
        assert stopping.wait(PATIENCE)
    other.join()


def test_other_signals_do_not_stop() -> None:
    stopping = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with set_on_stop_signals(stopping):
            signal.raise_signal(signal.SIGUSR1)
        assert not stopping.is_set()
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_inner_context_does_not_end_the_outer_one() -> None:
    outer, inner = threading.Event(), threading.Event()
    with set_on_stop_signals(outer):
        with set_on_stop_signals(inner):
            signal.raise_signal(signal.SIGTERM)
            assert inner.wait(PATIENCE)
        assert not outer.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert outer.wait(PATIENCE)
