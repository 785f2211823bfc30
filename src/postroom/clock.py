"""The one place that asks what time it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """The present instant, aware and in UTC."""
    return datetime.now(UTC)
