"""The rate of a receive stream."""

from __future__ import annotations

from postroom.receiving.location_meter import Rate


def test_the_rate_covers_the_last_ten_seconds() -> None:
    now = 0.0
    rate = Rate(monotonic=lambda: now)
    assert rate.per_second() == 0
    now = 2.0
    rate.add(100)
    assert rate.per_second() == 50
    now = 8.0
    rate.add(60)
    assert rate.per_second() == 20
    now = 15.0
    assert rate.per_second() == 6
    now = 30.0
    assert rate.per_second() == 0
