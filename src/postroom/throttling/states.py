"""The throttling states, and how much a host has to slow down when limits are exceeded.

throttle = find_throttle([Limit(...), Limit(...)], longest_delay=300)
if throttle is not None:
    ...                          # wait throttle.delay seconds, take at most throttle.rows(1_000)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from postroom.clock import system_clock
from postroom.throttling.definition import Override, OverrideMode

_MIN_DELAY = 0.5
#: Rate throttling only delays, because the rates are balanced again soon.
_LONGEST_RATE_DELAY = 1.0
_MAX_OVERRIDE_SEVERITY = 1_000


class ThrottleState(IntEnum):
    """Why a host is throttled (THR-01, THR-02). The numbers are those of BizTalk's performance counters."""

    NONE = 0
    DELIVERY_RATE = 1
    PUBLISHING_RATE = 2
    IN_PROCESS = 3
    PROCESS_MEMORY = 4
    SYSTEM_MEMORY = 5
    DATABASE_SIZE = 6
    DATABASE_SESSIONS = 8
    THREADS = 9
    DELIVERY_OVERRIDE = 10
    PUBLISHING_OVERRIDE = 11

    @property
    def label(self) -> str:
        return _LABELS.get(self, self.name.lower().replace("_", " "))


_LABELS = {
    ThrottleState.NONE: "not throttled",
    ThrottleState.DELIVERY_RATE: "rate imbalance",
    ThrottleState.PUBLISHING_RATE: "rate imbalance",
    ThrottleState.IN_PROCESS: "messages in process",
    ThrottleState.DELIVERY_OVERRIDE: "override",
    ThrottleState.PUBLISHING_OVERRIDE: "override",
}

_RATES = (ThrottleState.DELIVERY_RATE, ThrottleState.PUBLISHING_RATE)
#: If several limits are exceeded, the first of these is the state (THR-06).
_RANKS = (
    ThrottleState.PROCESS_MEMORY,
    ThrottleState.IN_PROCESS,
    ThrottleState.THREADS,
    ThrottleState.DATABASE_SIZE,
    ThrottleState.SYSTEM_MEMORY,
    ThrottleState.DATABASE_SESSIONS,
    *_RATES,
)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A measured value and the threshold for it. A threshold of 0 is not checked."""

    state: ThrottleState
    value: float
    threshold: float
    what: str
    """What the value counts, as it follows the number in a sentence."""

    @property
    def excess(self) -> float:
        """How much of the threshold the value is above it. Not above 0 if it is not exceeded."""
        return self.value / self.threshold - 1 if self.threshold > 0 else 0.0

    @property
    def reason(self) -> str:
        return f"{self.value:,.0f} {self.what}; the threshold is {self.threshold:,.0f}"


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """How much a host has to slow down. ``severity`` is above 0, and 1 from twice the threshold on."""

    state: ThrottleState
    severity: float
    delay: float
    """Seconds between two batches."""
    reason: str

    def rows(self, limit: int) -> int:
        """Return the size of a batch that would have ``limit`` rows: a tenth at low severity, 1 at the highest. Rate
        throttling only delays."""
        return limit if self.state in _RATES else max(1, round(limit / 10 * (1 - self.severity)))


def find_throttle(limits: Iterable[Limit], *, longest_delay: float) -> Throttle | None:
    """Return the throttle for these limits, or None if none of them is exceeded.

    The state is the first of the exceeded limits in the order of THR-06. The highest severity decides the delay.
    """
    exceeded = sorted(
        (limit for limit in limits if limit.excess > 0), key=lambda limit: (_RANKS.index(limit.state), -limit.excess)
    )
    if not exceeded:
        return None
    first = exceeded[0]
    severity = min(1.0, max(limit.excess for limit in exceeded if limit.state not in _RATES or limit is first))
    longest = min(longest_delay, _LONGEST_RATE_DELAY) if first.state in _RATES else longest_delay
    reasons = {limit.state: limit.reason for limit in reversed(exceeded)}  # one for each state
    return Throttle(
        state=first.state,
        severity=severity,
        delay=min(longest, max(_MIN_DELAY, severity * longest)),
        reason=" and ".join(reasons[state] for state in _RANKS if state in reasons),
    )


def apply_override(
    throttle: Throttle | None, override: Override, *, state: ThrottleState, longest_delay: float
) -> Throttle | None:
    """Return the throttle after an operator's override (THR-08). ``state`` is the state of an override."""
    if override.mode is OverrideMode.AUTO:
        return throttle
    if override.mode is OverrideMode.NEVER:
        return None
    severity = override.severity / _MAX_OVERRIDE_SEVERITY
    return Throttle(
        state=state,
        severity=severity,
        delay=min(longest_delay, max(_MIN_DELAY, severity * longest_delay)),
        reason=f"an operator has ordered it with severity {override.severity}",
    )


class LastingState:
    """The current state, and since when it lasts."""

    def __init__(self) -> None:
        self.state = ThrottleState.NONE
        self.since = system_clock()

    def update(self, throttle: Throttle | None) -> bool:
        """Take the current throttle. Return True if the state has changed."""
        state = ThrottleState.NONE if throttle is None else throttle.state
        if state is self.state:
            return False
        self.state, self.since = state, system_clock()
        return True

    @property
    def seconds(self) -> float:
        return max(0.0, (system_clock() - self.since).total_seconds())
