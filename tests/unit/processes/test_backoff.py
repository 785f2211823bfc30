"""Delays between retries double up to a maximum, and vary at random."""

from __future__ import annotations

import pytest

from postroom.processes.backoff import Backoff


@pytest.mark.parametrize(
    ("failures", "longest"), [(0, 0.0), (1, 0.5), (2, 1.0), (5, 8.0), (6, 16.0), (7, 30.0), (100_000, 30.0)]
)
def test_delays_double_up_to_the_longest_and_vary_by_half(failures: int, longest: float) -> None:
    delays = {Backoff(first=0.5, longest=30.0).delay(failures) for _ in range(100)}
    assert all(longest / 2 <= delay <= longest for delay in delays)
    assert len(delays) > 1 or longest == 0.0
