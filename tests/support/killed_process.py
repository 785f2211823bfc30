"""Run a function in a process that is killed with SIGKILL at a given point.

The processes are forked from one process that has imported the modules they need, because imports would take most of
their time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

#: The modules that are imported once, before the forks.
_PRELOADED = (
    "tests.integration.spark.intake.killed_claimer",
    "tests.integration.messagebox.inbox.killed_receiver",
    "tests.integration.operations.backup.killed_backup",
)


def kill_self(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls ``function`` and then kills the process."""

    def call(*arguments: Any, **named: Any) -> None:
        function(*arguments, **named)
        kill_self()

    return call


def run_until_killed(main: Callable[..., None], *arguments: str) -> None:
    """Run a function in its own process, which has to be killed before it ends."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["__main__", *_PRELOADED])
    process = forks.Process(target=main, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"the process ended with {process.exitcode}"
