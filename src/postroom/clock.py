"""The system clock, and durations in words. No other module reads the time of day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the current time, in UTC."""
    return datetime.now(UTC)


def format_duration(age: timedelta | None) -> str:
    """Return a duration with its two largest units: ``2 d 3 h``, ``5 min``, ``0.4 s``."""
    if age is None:
        return ""
    seconds = max(age.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (whole % 60, "s")]
    first = next(number for number, (count, _) in enumerate(units) if count)
    return " ".join(f"{count} {unit}" for count, unit in units[first : first + 2] if count)
