"""The load of a process: its memory, the memory of the machine, and threads."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from postroom.throttling.definition import Throttling
from postroom.throttling.states import Limit, ThrottleState

_MEGABYTE = 1 << 20
#: Read once: each call of os.cpu_count reads a file.
PROCESSORS = os.cpu_count() or 1
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def find_process_limits(throttling: Throttling) -> list[Limit]:
    """Measure this process, and return the limits that the thresholds of its host set."""
    limits = []
    if throttling.process_memory:
        limits.append(
            Limit(
                state=ThrottleState.PROCESS_MEMORY,
                value=_get_process().memory_info().rss / _MEGABYTE,
                threshold=_total_memory() * throttling.process_memory / 100 / _MEGABYTE,
                what="MB of memory are used by the process",
            )
        )
    if throttling.system_memory:
        limits.append(
            Limit(
                state=ThrottleState.SYSTEM_MEMORY,
                value=psutil.virtual_memory().percent,
                threshold=throttling.system_memory,
                what="% of the memory of the machine are used",
            )
        )
    if throttling.threads:
        limits.append(
            Limit(
                state=ThrottleState.THREADS,
                value=threading.active_count(),
                threshold=throttling.threads * PROCESSORS,
                what="threads run in the process",
            )
        )
    return limits


@cache
def _get_process() -> psutil.Process:
    return psutil.Process()


@cache
def _total_memory() -> int:
    """Return the memory of the machine, or of the container if that is less, in bytes."""
    total: int = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # without a limit the file is missing, or its content is "max"
        total = min(total, int(_CGROUP_LIMIT.read_text(encoding="ascii")))
    return total
