"""Throttling: slows down the streams of a host while the MessageBox has too many messages.

    throttle = read_throttle(connection, host_id)
    if throttle is not None:
        ...                          # wait throttle.delay seconds, receive at most throttle.rows(1_000)

Streams check the throttle between two batches, and HTTP locations before they accept a request. The check is cheap: the
load is measured from counters, at most once a second in the whole MessageBox.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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


def read_throttle(connection: Connection, host_id: int) -> Throttle | None:
    """Return the current throttle of a host, or None. The load is at most a few seconds old."""
    row = connection.execute(statement("queries/read_throttling"), (host_id,)).fetchone()
    if row is None:
        return None
    queued, spooled, messages, multiplier, longest = row
    return calculate_throttle(
        queued=queued,
        spooled=spooled,
        messages=messages,
        spool_multiplier=multiplier,
        longest_delay=longest.total_seconds(),
    )


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
    """Caches the throttle of a host for a second."""

    def __init__(self, host_id: int) -> None:
        self._host_id = host_id
        self._throttle: Throttle | None = None
        self._check_at = 0.0

    def is_due(self) -> bool:
        """Return True if ``current`` would query the MessageBox."""
        return time.monotonic() >= self._check_at

    def current(self, connection: Connection) -> Throttle | None:
        if self.is_due():
            self._throttle = read_throttle(connection, self._host_id)
            self._check_at = time.monotonic() + _CHECK_INTERVAL
        return self._throttle

    @property
    def last(self) -> Throttle | None:
        """The throttle at the last check."""
        return self._throttle


class Pace:
    """The pauses of one task between its transactions while its host is throttled (THR-04, THR-05).

    A waiting task occupies a core, which sinks may need to reduce the load. So the task waits for a few seconds in all,
    and then ends. The scheduler of the tasks waits instead.
    """

    def __init__(
        self,
        connection: Connection,
        host_id: int,
        *,
        max_wait: float = MAX_WAIT,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._connection = connection
        self._watch = ThrottleWatch(host_id)
        self._remaining_wait = max_wait
        self._sleep = sleep

    def __call__(self) -> bool:
        """Wait while the host is throttled, up to its delay. Return False if the maximum wait is used up."""
        waited = 0.0
        while (throttle := self._watch.current(self._connection)) is not None and waited < throttle.delay:
            pause = min(throttle.delay - waited, self._remaining_wait, _CHECK_INTERVAL)
            if pause <= 0:
                return False
            self._sleep(pause)
            waited += pause
            self._remaining_wait -= pause
        return True
