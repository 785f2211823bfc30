"""How ratios are measured: both sides in turn, at least five times; the median of the ratios, and their spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Result:
    """One row of the results. ``measured`` is None where a peer is not installed; that is never a pass.

    ``curves`` are for drawing: by name, seconds for a message at each number of subscriptions."""

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


def in_turn(ours: Callable[[], float], baseline: Callable[[], float], *, rounds: int = 5) -> list[tuple[float, float]]:
    """Both sides' figures, round by round; who goes first alternates."""
    ours(), baseline()  # once for nothing: caches, prepared statements, files that have to grow
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        if number % 2:
            second = baseline()
            pairs.append((ours(), second))
        else:
            first = ours()
            pairs.append((first, baseline()))
    return pairs


def ratio_of(pairs: list[tuple[float, float]]) -> tuple[float, tuple[float, float]]:
    """Median, and lowest and highest, of ours against the baseline."""
    ratios = [ours / baseline for ours, baseline in pairs]
    return statistics.median(ratios), (min(ratios), max(ratios))


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def cpu_seconds(work: Callable[[], object]) -> float:
    """The time of one core that ``work`` takes, whatever else the machine does meanwhile."""
    started = time.process_time()
    work()
    return time.process_time() - started
