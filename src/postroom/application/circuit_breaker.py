"""The circuit breaker of a send port, as a user declares it."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from postroom.stored_definitions import DeclaredValue, Seconds

_MAX_FAILURES = 1_000_000
_MAX_SECONDS = timedelta(days=7).total_seconds()


class CircuitBreaker(DeclaredValue):
    """Pauses a send port whose receiver is dead: ``CircuitBreaker(failures=10, period=60, probe_interval=30)``.

    It opens when ``failures`` attempts have failed one after the other, and the first of them is at least ``period``
    seconds ago. Then the messages of the port wait, and one is sent as a probe every ``probe_interval`` seconds. A
    probe that succeeds closes it.
    """

    failures: int = 10
    period: Seconds = Field(default=60.0, validate_default=True)
    probe_interval: Seconds = Field(default=30.0, validate_default=True)

    def problems(self) -> list[str]:
        """Describe each value that is out of range."""
        found = []
        if not 1 <= self.failures <= _MAX_FAILURES:
            found.append(f"failures is {self.failures}, but must be between 1 and {_MAX_FAILURES:,}.")
        for name, seconds in (("period", self.period), ("probe_interval", self.probe_interval)):
            if not 0 <= seconds <= _MAX_SECONDS:
                found.append(f"{name} is {seconds:g} seconds, but must be between 0 and {_MAX_SECONDS:,.0f}.")
        return found

    def __str__(self) -> str:
        return f"after {self.failures} failures in {self.period:g} s, a probe every {self.probe_interval:g} s"
