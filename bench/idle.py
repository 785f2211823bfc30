"""CPU of one streaming location that has nothing to do: the pipeline process and all that it has started and connected.

python -m bench.idle
"""

from __future__ import annotations

import statistics
import time
from collections import Counter

import psutil

from bench.messagebox import json_lines, measured_box
from bench.pipeline import pipeline_process, processes_of
from bench.ratios import Result
from bench.streaming import stream

_SECONDS, _ROUNDS = 10.0, 5


def measure() -> Result:
    """Percent of a core, after some work; the median of some stretches of time."""
    with measured_box() as box, pipeline_process(box, "local[2]") as pipeline:
        for _ in range(5):
            stream(box, json_lines(1), 1)
        shares = [_share(processes_of(box, pipeline)) for _ in range(_ROUNDS)]
    totals = [float(sum(share.values())) for share in shares]
    middle = sorted(shares, key=lambda share: sum(share.values()))[_ROUNDS // 2]
    return Result(
        name="CPU of one idle streaming location, in percent of a core, 10 s five times",
        group="C",
        measured=statistics.median(totals),
        bar=8,
        at_most=True,
        spread=(min(totals), max(totals)),
        detail="; ".join(f"{name} {share:.1f}" for name, share in middle.most_common()),
    )


def _share(processes: list[psutil.Process]) -> Counter[str]:
    """By the name of the program."""
    before = [sum(process.cpu_times()[:2]) for process in processes]
    started = time.monotonic()
    time.sleep(_SECONDS)
    elapsed = time.monotonic() - started
    share: Counter[str] = Counter()
    for process, earlier in zip(processes, before, strict=True):
        share[process.name()] += 100 * (sum(process.cpu_times()[:2]) - earlier) / elapsed
    return share


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
