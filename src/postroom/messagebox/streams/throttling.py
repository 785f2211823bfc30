"""Back-pressure: whether more waits in the MessageBox than a host wants, and what its streams do about it.

    throttle = read_throttle(connection, host_id)
    if throttle is not None:
        ...                          # wait throttle.delay seconds, take throttle.rows(1_000) at most

Whoever publishes can ask: streams between two batches, HTTP locations before they accept. It is cheap: the load is
measured once a second at most in the whole MessageBox, from counters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from postroom.application.throttling import Throttling
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

_SHORTEST_DELAY = 0.5
_LOOK_EVERY = 1.0
#: How long a task waits, in seconds, if it can end and come again.
MAX_WAIT = 5.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much waits: rows in all queues of subscribers, whoever published them, and messages in the spool."""

    queued: int
    spooled: int


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """How to slow down: ``severity`` is above 0 and up to 1, at twice the threshold."""

    severity: float
    delay: float
    """Seconds between two batches."""
    reason: str

    def rows(self, most: int) -> int:
        """How many rows a batch has that would have ``most``: a tenth at once, one when it is worst."""
        return max(1, round(most / 10 * (1 - self.severity)))


def calculate_throttle(load: Load, thresholds: Throttling) -> Throttle | None:
    """What a load means for a host with these thresholds; None if it is not over any."""
    limits = [(load.queued, thresholds.messages, "messages wait in the queues")]
    if thresholds.spool_multiplier:
        spool = round(thresholds.messages * thresholds.spool_multiplier)
        limits.append((load.spooled, spool, "messages are in the spool"))
    over = [(there / limit - 1, there, limit, what) for there, limit, what in limits if 0 < limit < there]
    if not over:
        return None
    excess, there, limit, what = max(over)
    severity = min(1.0, excess)
    delay = min(thresholds.longest_delay, max(_SHORTEST_DELAY, severity * thresholds.longest_delay))
    return Throttle(severity=severity, delay=delay, reason=f"{there:,} {what}; the threshold is {limit:,}")


def read_throttle(connection: Connection, host_id: int) -> Throttle | None:
    """Whether a host has to slow down now. The load is at most a second old, and its counters a few more."""
    row = connection.execute(statement("queries/read_throttling"), (host_id,)).fetchone()
    if row is None:
        return None
    queued, spooled, messages, multiplier, longest = row
    thresholds = Throttling(messages=messages, spool_multiplier=multiplier, longest_delay=longest)
    return calculate_throttle(Load(queued=queued, spooled=spooled), thresholds)


def store_thresholds(connection: Connection, host_id: int, thresholds: Throttling) -> None:
    """What a host lets wait from now on."""
    connection.execute(
        "UPDATE management.hosts SET throttle_messages = %s, throttle_spool_multiplier = %s,"
        " throttle_longest_delay = %s WHERE id = %s",
        (
            *(thresholds.messages, thresholds.spool_multiplier),
            *(timedelta(seconds=thresholds.longest_delay), host_id),
        ),
    )


class ThrottleWatch:
    """What ``read_throttle`` said, asked again once a second at most."""

    def __init__(self, host_id: int) -> None:
        self._host_id = host_id
        self._known: Throttle | None = None
        self._look_at = 0.0

    def is_due(self) -> bool:
        """Whether ``current`` would ask the MessageBox."""
        return time.monotonic() >= self._look_at

    def current(self, connection: Connection) -> Throttle | None:
        if self.is_due():
            self._known = read_throttle(connection, self._host_id)
            self._look_at = time.monotonic() + _LOOK_EVERY
        return self._known

    @property
    def last(self) -> Throttle | None:
        """What it was when it was asked last."""
        return self._known


class Pace:
    """The pauses of one task between its transactions, while too much waits (THR-04, THR-05).

    A task that waits keeps its place on a core, which others may need to take messages away: sinks are tasks, too. So
    it waits for some seconds in all, and then has to end, so that whoever hands out work waits in its place."""

    def __init__(
        self,
        connection: Connection,
        host_id: int,
        *,
        patience: float = MAX_WAIT,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._connection = connection
        self._watch = ThrottleWatch(host_id)
        self._patience = patience
        self._sleep = sleep

    def __call__(self) -> bool:
        """Whether there is less now, or the delay is over; False if there is still too much, and no patience left."""
        waited = 0.0
        while (throttle := self._watch.current(self._connection)) is not None and waited < throttle.delay:
            pause = min(throttle.delay - waited, self._patience, _LOOK_EVERY)
            if pause <= 0:
                return False
            self._sleep(pause)
            waited += pause
            self._patience -= pause
        return True
