"""Throttling: slows down the streams of a host while the MessageBox has too many messages.

    throttle = read_throttle(connection, host_id, location_id)
    if throttle is not None:
        ...                          # wait throttle.delay seconds, receive at most throttle.rows(1_000)

Streams check the throttle between two batches, and HTTP locations before they accept a request. The check is cheap: the
load is measured from counters, at most once a second in the whole MessageBox. The suspended rows of a receive location
slow down this location alone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from postroom.application.throttling import Throttling
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

_MIN_DELAY = 0.5
_CHECK_INTERVAL = 1.0
#: Maximum time that a task waits, in seconds. After that it ends and is run again.
MAX_WAIT = 5.0


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """How much a stream has to slow down. ``severity`` is above 0, and 1 from twice the threshold on."""

    severity: float
    delay: float
    """Seconds between two batches."""
    reason: str

    def rows(self, most: int) -> int:
        """Return the size of a batch that would have ``most`` rows: a tenth at low severity, 1 at the highest."""
        return max(1, round(most / 10 * (1 - self.severity)))


def calculate_throttle(
    *, queued: int, spooled: int, messages: int, spool_multiplier: float, longest_delay: float
) -> Throttle | None:
    """Return the throttle of a host, or None if the load is not above a threshold.

    ``queued`` and ``spooled`` are the load of the MessageBox: rows in all queues of subscribers, and messages in the
    spool. The other arguments are the host's ``Throttling``.
    """
    limits = [(queued, messages, "messages are in the queues")]
    if spool_multiplier:
        limits.append((spooled, round(messages * spool_multiplier), "messages are in the spool"))
    over = [(count / limit - 1, count, limit, what) for count, limit, what in limits if 0 < limit < count]
    if not over:
        return None
    excess, count, limit, what = max(over)
    severity = min(1.0, excess)
    delay = min(longest_delay, max(_MIN_DELAY, severity * longest_delay))
    return Throttle(severity=severity, delay=delay, reason=f"{count:,} {what}; the threshold is {limit:,}")


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load of the MessageBox, and the thresholds of a host."""

    queued: int
    spooled: int
    suspended: Mapping[str, int]
    """Rows of messages that could not be received or published, by receive location. ``queued`` contains them. The key
    of programs and of routing failure reports is empty."""
    messages: int
    spool_multiplier: float
    longest_delay: float

    def get_throttle(self, location_id: uuid.UUID) -> Throttle | None:
        """Return the throttle of a receive location, or None. Suspended rows of other locations do not count."""
        others = sum(count for location, count in self.suspended.items() if location != str(location_id))
        return calculate_throttle(
            queued=self.queued - others,
            spooled=self.spooled - others,
            messages=self.messages,
            spool_multiplier=self.spool_multiplier,
            longest_delay=self.longest_delay,
        )


def read_load(connection: Connection, host_id: int) -> Load | None:
    """Return the load for a host, at most a few seconds old. Return None if the host does not exist any more."""
    row = connection.execute(statement("queries/read_throttling"), (host_id,)).fetchone()
    if row is None:
        return None
    queued, spooled, suspended, messages, multiplier, longest = row
    return Load(
        queued=queued,
        spooled=spooled,
        suspended=suspended,
        messages=messages,
        spool_multiplier=multiplier,
        longest_delay=longest.total_seconds(),
    )


def read_throttle(connection: Connection, host_id: int, location_id: uuid.UUID) -> Throttle | None:
    """Return the current throttle of a receive location, or None."""
    load = read_load(connection, host_id)
    return None if load is None else load.get_throttle(location_id)


def store_thresholds(connection: Connection, host_id: int, thresholds: Throttling) -> None:
    """Store the throttling thresholds of a host."""
    connection.execute(
        "UPDATE management.hosts SET throttle_messages = %s, throttle_spool_multiplier = %s,"
        " throttle_longest_delay = %s WHERE id = %s",
        (
            *(thresholds.messages, thresholds.spool_multiplier),
            *(timedelta(seconds=thresholds.longest_delay), host_id),
        ),
    )


class ThrottleWatch:
    """Caches the load for a host for a second."""

    def __init__(self, host_id: int) -> None:
        self._host_id = host_id
        self._load: Load | None = None
        self._check_at = 0.0

    def is_due(self) -> bool:
        """Return True if ``current`` would query the MessageBox."""
        return time.monotonic() >= self._check_at

    def current(self, connection: Connection, location_id: uuid.UUID) -> Throttle | None:
        """Return the current throttle of a receive location."""
        if self.is_due():
            self._load = read_load(connection, self._host_id)
            self._check_at = time.monotonic() + _CHECK_INTERVAL
        return self.get_last(location_id)

    def get_last(self, location_id: uuid.UUID) -> Throttle | None:
        """Return the throttle of a receive location at the last check."""
        return None if self._load is None else self._load.get_throttle(location_id)


class Pace:
    """The pauses of one task between its transactions while its location is throttled (THR-04, THR-05).

    A waiting task occupies a core, which sinks may need to reduce the load. So the task waits for a few seconds in all,
    and then ends. The scheduler of the tasks waits instead.
    """

    def __init__(
        self,
        connection: Connection,
        host_id: int,
        location_id: uuid.UUID,
        *,
        max_wait: float = MAX_WAIT,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._connection = connection
        self._watch = ThrottleWatch(host_id)
        self._location_id = location_id
        self._remaining_wait = max_wait
        self._sleep = sleep

    def __call__(self) -> bool:
        """Wait while the location is throttled, up to its delay. Return False if the maximum wait is used up."""
        waited = 0.0
        while (
            throttle := self._watch.current(self._connection, self._location_id)
        ) is not None and waited < throttle.delay:
            pause = min(throttle.delay - waited, self._remaining_wait, _CHECK_INTERVAL)
            if pause <= 0:
                return False
            self._sleep(pause)
            waited += pause
            self._remaining_wait -= pause
        return True
