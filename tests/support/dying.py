"""Processes that are killed with -9 at a point that they were told.

They are forked from one process that has imported what they need: most of their time would go into imports otherwise.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

#: What is imported once, for all of them.
_DYING = ("tests.integration.claims.dies", "tests.integration.messagebox.inbox.dies")


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> None:
        function(*arguments, **named)
        die()

    return call


def run_and_die(main: Callable[..., None], *words: str) -> None:
    """Runs it in a process of its own, which must not come to its end."""
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["__main__", *_DYING])
    process = forks.Process(target=main, args=words)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL, f"it ended with {process.exitcode}"
