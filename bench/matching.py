"""Workload W: CPU time per message at many subscriptions against that at a thousand.

    python -m bench.matching

Batches have 10,000 messages, and times are seconds of one core. Text columns are plain text, as from a pipeline. Two
indexes are measured alternately over several batches, so that neither stays in the caches of the processor. Their
results for some messages are compared with ``evaluate`` first.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from bench.ratios import Result, compute_ratio, cpu_seconds, measure_alternately
from bench.workload import Kind, Workload
from postroom.filters.evaluate import matches
from postroom.filters.index import SubscriptionIndex

MESSAGES = 10_000
BATCHES = 6
ROUNDS = 7
_BASE = 1_000
_COMPARED_SUBSCRIPTIONS, _COMPARED_MESSAGES = 2_000, 25


def measure() -> Iterator[Result]:
    """Yield three results. The indexes of one are freed before the next are built."""
    yield measure_growth("W mixed", Kind.MIXED, (10_000, 100_000), bar=4)
    yield measure_growth("W equal", Kind.EQUAL, (10_000, 100_000, 1_000_000), bar=3)
    yield measure_growth("W mixed, half of the groups only ranges", Kind.HALF_RANGES, (10_000, 100_000), bar=20)


def measure_growth(name: str, kind: Kind, sizes: tuple[int, ...], *, bar: float, group: str = "B") -> Result:
    """Measure a message at the largest of these numbers of subscriptions against one at a thousand."""
    base = _MeasuredIndex(Workload(kind, _BASE))
    curve: dict[int, float] = {}
    for size in sizes:
        side = _MeasuredIndex(Workload(kind, size))
        pairs = measure_alternately(side.cost, base.cost, rounds=ROUNDS)
        curve[size], curve[_BASE] = (statistics.median(figures) for figures in zip(*pairs, strict=True))
    ratio, spread = compute_ratio(pairs)
    speeds = ", ".join(f"{1 / curve[each]:,.0f} at {each:,}" for each in sorted(curve))
    return Result(
        name=f"{name}: a message at {sizes[-1]:,} subscriptions against one at {_BASE:,}",
        group=group,
        measured=ratio,
        bar=bar,
        at_most=True,
        spread=spread,
        detail=f"messages/s: {speeds}; matches a message: {side.matches:.1f}, and {base.matches:.1f} at {_BASE:,}",
        curves={name: dict(sorted(curve.items()))},
    )


class _MeasuredIndex:
    """An index and its batches of messages."""

    def __init__(self, workload: Workload) -> None:
        self._index = workload.index()
        self._batches = [workload.messages(MESSAGES, seed=seed) for seed in range(BATCHES)]
        self.matches = len(self._index.match(self._batches[0], MESSAGES)[0]) / MESSAGES
        _compare(workload, self._index, self._batches[0])

    def cost(self) -> float:
        """Return seconds per message."""
        spent = cpu_seconds(lambda: [self._index.match(batch, MESSAGES) for batch in self._batches])
        return spent / MESSAGES / BATCHES


def _compare(workload: Workload, index: SubscriptionIndex, columns: dict[str, pa.Array]) -> None:
    """Raise an error if the index and the evaluator differ for the first subscriptions and messages."""
    filters = list(islice(workload.filters(), _COMPARED_SUBSCRIPTIONS))
    for row, promoted in enumerate(pa.table(columns).slice(0, _COMPARED_MESSAGES).to_pylist()):
        alone = {key: column.slice(row, 1) for key, column in columns.items()}
        found = [id for id in index.match(alone, 1)[1].tolist() if id < len(filters)]
        if found != [id for id, filter in enumerate(filters) if matches(filter, promoted)]:
            raise RuntimeError("The results of index and evaluator differ. Nothing was measured.")


if __name__ == "__main__":
    import sys

    for result in measure():
        sys.stdout.write(f"{result}\n")
