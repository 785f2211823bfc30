"""The index: a batch of 10,000 messages at 10,000 subscriptions, against ``evaluate`` on a sample.

    python -m bench.index

The subscriptions are W mixed. The results of the index and of ``evaluate`` are compared before the measurement.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from bench.workload import Kind, Workload
from postroom.filters.columns import build_columns
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.filters.index import SubscriptionIndex
from postroom.values import Value

SUBSCRIPTIONS = 10_000
MESSAGES = 10_000
SAMPLE = 10
ROUNDS = 7


def measure() -> Result:
    """Return messages/s of the index over messages/s of the evaluator."""
    workload = Workload(Kind.MIXED, SUBSCRIPTIONS)
    subscriptions = dict(enumerate(workload.filters()))
    index, columns = workload.index(), workload.messages(MESSAGES)
    sample: list[dict[str, Value]] = pa.table(columns).slice(0, SAMPLE).to_pylist()
    _compare(index, subscriptions, sample)

    def measure_index() -> float:
        return MESSAGES / seconds(lambda: index.match(columns, MESSAGES))

    def measure_evaluator() -> float:
        return SAMPLE / seconds(lambda: [_evaluate(subscriptions, promoted) for promoted in sample])

    pairs = measure_alternately(measure_index, measure_evaluator, rounds=ROUNDS)
    ratio, spread = compute_ratio(pairs)
    fast, slow = (float(np.median(side)) for side in zip(*pairs, strict=True))
    match_count = len(index.match(columns, MESSAGES)[0]) / MESSAGES
    return Result(
        name="index: match a batch of 10,000 messages at 10,000 subscriptions, against `evaluate` on a sample",
        group="A",
        measured=ratio,
        bar=1_000,
        spread=spread,
        detail=f"{fast:,.0f} messages/s against {slow:,.1f}; {match_count:.1f} matches a message",
    )


def _evaluate(subscriptions: Mapping[int, Filter], promoted: Mapping[str, Value]) -> list[int]:
    return [id for id, filter in subscriptions.items() if matches(filter, promoted)]


def _compare(index: SubscriptionIndex, subscriptions: Mapping[int, Filter], sample: list[dict[str, Value]]) -> None:
    rows, ids = index.match(build_columns(sample), len(sample))
    found = [ids[rows == row].tolist() for row in range(len(sample))]
    if found != [_evaluate(subscriptions, promoted) for promoted in sample]:
        raise RuntimeError("The results of index and evaluator differ. Nothing was measured.")


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
