"""The measurement of bench/matching.py for groups of many equalities that each match a quarter of the messages."""

from __future__ import annotations

from bench.matching import measure_growth
from bench.ratios import Result
from bench.workload import Kind


def measure() -> Result:
    return measure_growth("W with 12 low-cardinality equalities", Kind.TWELVE, (10_000, 100_000), bar=10, group="S")


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
