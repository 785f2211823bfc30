"""Workload W: what it costs to put a subscription into the index, alone and among a million, and the memory it takes.

    python -m bench.building

Times are seconds of one core. Filters exist before the clock starts, a portion at a time.
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

from bench.ratios import Result, cpu_seconds, in_turn, ratio_of
from bench.workload import Kind, Type, Workload
from postroom.filters.expression import Filter
from postroom.filters.index import SubscriptionIndex

MANY, FEW = 1_000_000, 10_000
_PORTION = 10_000
_BUILDS, _ENLISTS = 3, 20  # before and after the million
_WEIGHED = 200_000


def measure() -> Iterator[Result]:
    """Building, one enlist, and memory."""
    build(FEW)  # once for nothing
    few = [build(FEW) for _ in range(_BUILDS)]
    # A million takes a while, and is built once.
    many = build(MANY)
    few += [build(FEW) for _ in range(_BUILDS)]
    ratio, spread = ratio_of([(many[1], cost) for _, cost in few])
    yield Result(
        name=f"index: building it, per subscription, {MANY:,} against {FEW:,} (W mixed)",
        group="B",
        measured=ratio,
        bar=3,
        at_most=True,
        spread=spread,
        detail=f"{1e6 * many[1]:.1f} against {1e6 * few[-1][1]:.1f} µs; the million once, the others six times",
    )
    yield _one_enlist({MANY: many[0], FEW: few[0][0]})
    yield _memory()


def build(subscriptions: int) -> tuple[SubscriptionIndex, float]:
    """An index of W mixed, and what a subscription has cost."""
    index = SubscriptionIndex()
    filters = enumerate(Workload(Kind.MIXED, subscriptions).filters())
    spent = 0.0
    while portion := list(islice(filters, _PORTION)):
        spent += cpu_seconds(partial(_add, index, portion))
    return index, (spent + cpu_seconds(lambda: index.match_one({}))) / subscriptions


def _add(index: SubscriptionIndex, portion: Sequence[tuple[int, Filter]]) -> None:
    for id, filter in portion:
        index.add(id, filter)


def _one_enlist(indexes: Mapping[int, SubscriptionIndex]) -> Result:
    """Each time a new subscription and the match after it. What was compiled before must be what is there after."""

    def enlist(size: int) -> float:
        index, before = indexes[size], indexes[size]._segments[0]
        spent = [cpu_seconds(partial(_enlist, index)) for _ in range(_ENLISTS)]
        if index._segments[0] is not before:
            raise RuntimeError("One enlist has compiled all the others again.")
        return float(np.median(spent))

    pairs = in_turn(lambda: enlist(MANY), lambda: enlist(FEW))
    ratio, spread = ratio_of(pairs)
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


def _memory() -> Result:
    command = [sys.executable, "-m", "bench.building", "weigh"]
    weighed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    arrays, process = (weighed[each] / _WEIGHED for each in ("objects", "process"))
    return Result(
        name="index: bytes for a subscription of three predicates",
        group="B",
        measured=max(arrays, process),
        bar=250,
        at_most=True,
        detail=f"the larger of {arrays:.0f} in arrays, lists and texts and {process:.0f} by which a process grows;"
        f" {_WEIGHED:,} subscriptions",
    )


def _weigh() -> dict[str, int]:
    """In a process of its own: by how much it grows, and what can be reached from the index."""
    for filter in islice(Workload(Kind.THREE, _WEIGHED).filters(), 1_000):
        SubscriptionIndex().add(0, filter)
    Workload(Kind.THREE, 1_000).index().match(Workload(Kind.THREE, 1_000).messages(10), 10)
    before = _size_of_process()
    index = Workload(Kind.THREE, _WEIGHED).index()
    return {"process": _size_of_process() - before, "objects": _reachable(index)}


def _size_of_process() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what has been freed goes back to the system
    return int(psutil.Process().memory_full_info().uss)


def _reachable(start: object) -> int:
    """Bytes of all objects from ``start`` on, each once; not of classes, modules and functions."""
    seen: set[int] = set()
    left: list[Any] = [start]
    total = 0
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type(sys) | type | type(_reachable)):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        # An array that is part of another one has no bytes of its own: what it is part of has them.
        left.extend(gc.get_referents(one) if getattr(one, "base", None) is None else (one.base,))
    return total


if __name__ == "__main__":
    if sys.argv[1:] == ["weigh"]:
        sys.stdout.write(json.dumps(_weigh()))
    else:
        for result in measure():
            sys.stdout.write(f"{result}\n")
