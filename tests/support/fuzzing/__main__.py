"""`make fuzz`: run each fuzz target for some time and print a table of the results.

python -m tests.support.fuzzing [--seconds 60] [--target json] [--seed 7] [--inputs 100000]
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.support.fuzzing.targets import TARGETS
from tests.support.fuzzing.watch import FuzzProblem, fuzz

_ROW = "{:<12} {:>10} {:>8} {:>6} {:>14}\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--target", choices=TARGETS, action="append", help="the default is all")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="repeats a run")
    parser.add_argument("--inputs", type=int, help="end a target after this number of inputs")
    chosen = parser.parse_args()
    sys.stdout.write(f"seed {chosen.seed}\n")
    sys.stdout.write(_ROW.format("target", "inputs", "crashes", "hangs", "messages lost"))
    problems: list[FuzzProblem] = []
    for name in chosen.target or TARGETS:
        result = fuzz(name, seed=chosen.seed, seconds=chosen.seconds, inputs=chosen.inputs)
        counts = [result.count(kind) for kind in ("crash", "hang", "lost")]
        sys.stdout.write(_ROW.format(name, f"{result.inputs:,}", *counts))
        sys.stdout.flush()
        problems += result.problems
    for problem in problems:
        sys.stdout.write(f"\n{problem.kind}: {problem.input}\n{problem.text}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
