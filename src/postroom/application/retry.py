"""The retries of a send port, as a user declares them."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from postroom.stored_definitions import DeclaredValue, Seconds

_MAX_RETRIES = 1_000
_MAX_INTERVAL = timedelta(minutes=525_600).total_seconds()


class Retry(DeclaredValue):
    """How often a failed send is tried again, and after how many seconds: ``Retry(count=5, interval=60)`` (SND-04)."""

    count: int = 3
    interval: Seconds = Field(default=300.0, validate_default=True)

    def problems(self) -> list[str]:
        """Describe each value that is out of range."""
        found = []
        if not 0 <= self.count <= _MAX_RETRIES:
            found.append(f"retry: count is {self.count}, but must be between 0 and {_MAX_RETRIES:,}.")
        if not 0 <= self.interval <= _MAX_INTERVAL:
            found.append(
                f"retry: interval is {self.interval:g} seconds, but must be between 0 and {_MAX_INTERVAL:,.0f}."
            )
        return found
