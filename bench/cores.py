"""The streaming lane on local[2] against local[1]. PostgreSQL uses the same two cores.

python -m bench.cores
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.messagebox import json_lines, measured_box
from bench.pipeline import pipeline_process
from bench.ratios import Result, compute_ratio, measure_alternately
from bench.streaming import stream

_FILES, _LINES = 8, 10_000


def measure() -> Result:
    """Return messages/s with two concurrent tasks over messages/s with one."""
    contents = [b"\n".join(json_lines(_LINES, seed=seed)) for seed in range(_FILES)]
    with ExitStack() as stack:
        boxes = []
        for master in ("local[2]", "local[1]"):
            box = stack.enter_context(measured_box())
            stack.enter_context(pipeline_process(box, master))
            boxes.append(box)
        two, one = boxes
        messages = _FILES * _LINES
        pairs = measure_alternately(lambda: stream(two, contents, messages), lambda: stream(one, contents, messages))
    ratio, spread = compute_ratio(pairs)
    both, single = (sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
    return Result(
        name="streaming lane on local[2] against local[1], JSON lines of 1 KB, 1,000 subscriptions",
        group="C",
        measured=ratio,
        bar=1.15,
        spread=spread,
        detail=f"{both:,.0f} against {single:,.0f} messages/s",
    )


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
