"""What a receive location has received since its start, and the metrics of the locations that a process serves."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from postroom.clock import Clock
from postroom.messagebox.intake.location_progress import LocationProgress, LocationState
from postroom.monitoring.metrics import Metric
from postroom.receiving.task import OUTCOMES

_RATE_SECONDS = 10.0


class Rate:
    """Messages per second over the last ten seconds. Several threads use it: a deque is thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._started = monotonic()
        self._counts: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> None:
        self._counts.append((self._monotonic(), count))

    def per_second(self) -> float:
        """Return the rate over the window, or since the start if that is shorter. Rounded."""
        now = self._monotonic()
        while self._counts and self._counts[0][0] < now - _RATE_SECONDS:
            self._counts.popleft()
        elapsed = max(1.0, min(_RATE_SECONDS, now - self._started))
        return round(sum(count for _, count in tuple(self._counts)) / elapsed, 1)


class LocationMeter:
    """What a location has received since its start. Several threads count."""

    def __init__(self, location_id: uuid.UUID, clock: Clock) -> None:
        self._location_id = location_id
        self._clock = clock
        self._lock = threading.Lock()
        #: The number of interchanges (files), and of messages by what became of them.
        self.counts: Counter[str] = Counter()
        #: The sum of the times from the arrival of interchanges to their publication.
        self.milliseconds = 0
        self.last_batch_at: datetime | None = None
        self._rate = Rate()

    def add(self, received: Mapping[str, int], *, milliseconds: int = 0) -> None:
        """Count what was received, if it is anything."""
        with self._lock:
            self.counts.update(received)
            self.milliseconds += milliseconds
            if any(received.values()):
                self._rate.add(received["published"])
                self.last_batch_at = self._clock()

    def build_progress(self, state: LocationState, reason: str | None) -> LocationProgress:
        return LocationProgress(
            location_id=self._location_id,
            state=state,
            reason=reason,
            rows=self.counts["published"],
            suspended=self.counts["suspended"],
            rate=self._rate.per_second(),
            last_batch_at=self.last_batch_at,
        )


def collect_location_metrics(host: str, locations: Mapping[str, LocationMeter]) -> Iterator[Metric]:
    """Yield the metrics of the locations of a host by their names."""
    yield Metric(
        "counter",
        "postroom_received",
        "What the location has received since it was started, by outcome: files are interchanges, the others messages.",
        {(host, name, outcome): meter.counts[outcome] for name, meter in locations.items() for outcome in OUTCOMES},
        labels=("host", "location", "outcome"),
    )
