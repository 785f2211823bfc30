"""Measurement of ratios: both sides alternately, at least five times. The result is the median with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Result:
    """One row of the results. ``measured`` and ``met`` are None if a peer is not installed.

    ``curves`` are drawn: seconds per message by number of subscriptions, for each name."""

    name: str
    group: str
    measured: float | None
    bar: float
    at_most: bool = False
    spread: tuple[float, float] | None = None
    detail: str = ""
    curves: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured <= self.bar if self.at_most else self.measured >= self.bar


def measure_alternately(ours: Callable[[], _T], baseline: Callable[[], _T], *, rounds: int = 5) -> list[tuple[_T, _T]]:
    """Measure both sides in each round. The side that is measured first alternates."""
    ours(), baseline()  # warm-up of caches, prepared statements and file sizes
    pairs: list[tuple[_T, _T]] = []
    for number in range(rounds):
        if number % 2:
            second = baseline()
            pairs.append((ours(), second))
        else:
            first = ours()
            pairs.append((first, baseline()))
    return pairs


def compute_ratio(pairs: list[tuple[float, float]]) -> tuple[float, tuple[float, float]]:
    """Return the median, and the lowest and highest, of the ratios."""
    ratios = [ours / baseline for ours, baseline in pairs]
    return statistics.median(ratios), (min(ratios), max(ratios))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of ``work``, which do not depend on other load."""
    started = time.process_time()
    work()
    return time.process_time() - started
