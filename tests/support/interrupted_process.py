"""Run a function in a process that is killed (SIGKILL) or frozen (SIGSTOP) at a given point.

The processes are forked from one process that has imported the modules they need, because imports would take most of
their time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from typing import Any

import psutil

from tests.support.waiting import wait_until

#: The modules that are imported once, before the forks.
_PRELOADED = (
    "tests.integration.receiving.files.interrupted_claimer",
    "tests.integration.messagebox.intake.interrupted_receiver",
    "tests.integration.receiving.interrupted_poller",
    "tests.integration.operations.backup.interrupted_backup",
    "tests.faults.frozen_peers",
)


#: The signal that a process sends to itself. Each process has its own.
_signal = signal.SIGKILL


def interrupt_self(*_: object, **__: object) -> None:
    """Kill or freeze this process, as its starter has chosen."""
    os.kill(os.getpid(), _signal)


def interrupt_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``function`` and then interrupts the process."""

    def call(*arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        interrupt_self()
        return result

    return call


def interrupt_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that interrupts the process before it calls ``function``."""

    def call(*arguments: Any, **named: Any) -> Any:
        interrupt_self()
        return function(*arguments, **named)

    return call


def run_until_killed(main: Callable[..., None], *arguments: str) -> None:
    """Run a function in its own process, which has to be killed before it ends."""
    process = _start(signal.SIGKILL, main, *arguments)
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"the process ended with {process.exitcode}"


@contextmanager
def frozen_process(main: Callable[..., None], *arguments: str) -> Iterator[None]:
    """Run a function in its own process, which has to freeze before it ends. It is killed after the block."""
    process = _start(signal.SIGSTOP, main, *arguments)
    try:
        wait_until(lambda: _is_frozen(process), what="a frozen process")
        yield
    finally:
        process.kill()
        process.join()


def _is_frozen(process: ForkServerProcess) -> bool:
    assert process.exitcode is None, f"the process ended with {process.exitcode}"
    return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)


def _start(interruption: signal.Signals, main: Callable[..., None], *arguments: str) -> ForkServerProcess:
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["__main__", *_PRELOADED])
    process = forks.Process(target=_run, args=(interruption, main, *arguments))
    process.start()
    return process


def _run(interruption: signal.Signals, main: Callable[..., None], *arguments: str) -> None:
    global _signal
    _signal = interruption
    main(*arguments)
