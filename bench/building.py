"""Workload W: CPU time to build the index and to add one subscription, and memory per subscription.

    python -m bench.building

Times are seconds of one core. Filters are created in portions before the clock starts.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import psutil

from bench.ratios import Result, compute_ratio, cpu_seconds, measure_alternately
from bench.workload import Kind, Type, Workload
from postroom.filters.expression import Filter
from postroom.filters.index import SubscriptionIndex

MANY, FEW = 1_000_000, 10_000
_PORTION = 10_000
_BUILDS, _ENLISTS = 3, 20  # before and after the million
_MEASURED_SUBSCRIPTIONS = 200_000


def measure() -> Iterator[Result]:
    """Measure building, one enlist, and memory."""
    build_index(FEW)  # warm-up
    few = [build_index(FEW) for _ in range(_BUILDS)]
    # The index of a million is built only once, because it takes long.
    many = build_index(MANY)
    few += [build_index(FEW) for _ in range(_BUILDS)]
    ratio, spread = compute_ratio([(many[1], cost) for _, cost in few])
    yield Result(
        name=f"index: building it, per subscription, {MANY:,} against {FEW:,} (W mixed)",
        group="B",
        measured=ratio,
        bar=3,
        at_most=True,
        spread=spread,
        detail=f"{1e6 * many[1]:.1f} against {1e6 * few[-1][1]:.1f} µs; the million once, the others six times",
    )
    yield _measure_enlist({MANY: many[0], FEW: few[0][0]})
    yield _measure_bytes()


def build_index(subscriptions: int) -> tuple[SubscriptionIndex, float]:
    """Return an index of W mixed, and the seconds per subscription."""
    index = SubscriptionIndex()
    filters = enumerate(Workload(Kind.MIXED, subscriptions).filters())
    spent = 0.0
    while portion := list(islice(filters, _PORTION)):
        spent += cpu_seconds(partial(_add, index, portion))
    return index, (spent + cpu_seconds(lambda: index.match_one({}))) / subscriptions


def _add(index: SubscriptionIndex, portion: Sequence[tuple[int, Filter]]) -> None:
    for id, filter in portion:
        index.add(id, filter)


def _measure_enlist(indexes: Mapping[int, SubscriptionIndex]) -> Result:
    """Measure a new subscription and the next match. The compiled segment of the others must be kept."""

    def enlist(size: int) -> float:
        index, before = indexes[size], indexes[size]._segments[0]
        spent = [cpu_seconds(partial(_enlist, index)) for _ in range(_ENLISTS)]
        if index._segments[0] is not before:
            raise RuntimeError("One enlist compiled all other subscriptions again.")
        return float(np.median(spent))

    pairs = measure_alternately(lambda: enlist(MANY), lambda: enlist(FEW))
    ratio, spread = compute_ratio(pairs)
    return Result(
        name=f"index: one enlist and the next match, {MANY:,} subscriptions against {FEW:,}; the rest stays compiled",
        group="B",
        measured=ratio,
        bar=3,
        at_most=True,
        spread=spread,
        detail=f"{1e3 * pairs[-1][0]:.2f} against {1e3 * pairs[-1][1]:.2f} ms",
    )


def _enlist(index: SubscriptionIndex) -> None:
    index.add(len(index), Type == "new")
    index.match_one({Type.key: "new"})


def _measure_bytes() -> Result:
    command = [sys.executable, "-m", "bench.building", "memory"]
    memory = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    arrays, process = (memory[each] / _MEASURED_SUBSCRIPTIONS for each in ("objects", "process"))
    return Result(
        name="index: bytes for a subscription of three predicates",
        group="B",
        measured=max(arrays, process),
        bar=250,
        at_most=True,
        detail=f"the larger of {arrays:.0f} in arrays, lists and texts and {process:.0f} by which a process grows;"
        f" {_MEASURED_SUBSCRIPTIONS:,} subscriptions",
    )


def _measure_memory() -> dict[str, int]:
    """Return the growth of this process and the bytes that are reachable from the index."""
    for filter in islice(Workload(Kind.THREE, _MEASURED_SUBSCRIPTIONS).filters(), 1_000):
        SubscriptionIndex().add(0, filter)
    Workload(Kind.THREE, 1_000).index().match(Workload(Kind.THREE, 1_000).messages(10), 10)
    before = _read_process_size()
    index = Workload(Kind.THREE, _MEASURED_SUBSCRIPTIONS).index()
    return {"process": _read_process_size() - before, "objects": _sum_reachable_bytes(index)}


def _read_process_size() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # return freed memory to the system
    return int(psutil.Process().memory_full_info().uss)


def _sum_reachable_bytes(start: object) -> int:
    """Return the bytes of all objects reachable from ``start``, without classes, modules and functions."""
    visited: set[int] = set()
    pending: list[Any] = [start]
    total = 0
    while pending:
        one = pending.pop()
        if id(one) in visited or isinstance(one, type(sys) | type | type(_sum_reachable_bytes)):
            continue
        visited.add(id(one))
        total += sys.getsizeof(one)
        # A view of an array has no bytes of its own. Its base has them.
        pending.extend(gc.get_referents(one) if getattr(one, "base", None) is None else (one.base,))
    return total


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        sys.stdout.write(json.dumps(_measure_memory()))
    else:
        for result in measure():
            sys.stdout.write(f"{result}\n")
