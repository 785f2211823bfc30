"""CPU of one idle streaming location: the pipeline process, its child processes and its PostgreSQL backends.

python -m bench.idle
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from contextlib import suppress

import psutil

from bench.messagebox import json_lines, measured_box
from bench.pipeline import find_processes, pipeline_process
from bench.ratios import Result
from bench.streaming import stream

_SECONDS, _ROUNDS = 10.0, 5


def measure() -> Result:
    """Return the median percentage of a core, after a warm-up."""
    with measured_box() as box, pipeline_process(box, "local[2]") as pipeline:
        for _ in range(5):
            stream(box, json_lines(1), 1)
        shares = [measure_shares(find_processes(box, pipeline)) for _ in range(_ROUNDS)]
    totals = [float(sum(share.values())) for share in shares]
    middle = sorted(shares, key=lambda share: sum(share.values()))[_ROUNDS // 2]
    return Result(
        name="CPU of one idle streaming location, in percent of a core, 10 s five times",
        group="C",
        measured=statistics.median(totals),
        bar=8,
        at_most=True,
        spread=(min(totals), max(totals)),
        detail="; ".join(f"{name} {share:.1f}" for name, share in sorted(middle.items())),
    )


def measure_shares(processes: list[psutil.Process]) -> dict[str, float]:
    """Return the percentage of a core by program, over ten seconds."""
    started = time.monotonic()
    before = _read_cpu_times(processes)
    time.sleep(_SECONDS)
    after = _read_cpu_times(processes)
    elapsed = time.monotonic() - started
    share: defaultdict[str, float] = defaultdict(float)
    for process, (name, seconds) in after.items():
        share[name] += 100 * (seconds - before[process][1]) / elapsed
    return share


def _read_cpu_times(processes: list[psutil.Process]) -> dict[psutil.Process, tuple[str, float]]:
    """Return the CPU seconds of the processes. Workers that Spark has ended are left out."""
    times = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess, OSError):
            times[process] = process.name(), time.clock_gettime(_get_cpu_clock(process.pid))
    return times


def _get_cpu_clock(pid: int) -> int:
    """Return the CPU clock of a process, as clock_getcpuclockid does on Linux. It counts nanoseconds. The times in
    /proc are counted in ticks of 10 ms, and a process that wakes for a tenth of that may be charged for all of it."""
    return (~pid << 3) | 2


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
