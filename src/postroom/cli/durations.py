"""How long something has taken, as people say it."""

from __future__ import annotations

from datetime import timedelta


def format_duration(age: timedelta | None) -> str:
    """``2 d 3 h``, ``5 min``, ``0.4 s``: two units at most, the larger ones."""
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
