"""Delays the publishes of orchestrations while the publishing of their host is throttled (THR-01, THR-05).

A persistence point that publishes is stored after the delay of the throttle. The instance waits for it in memory,
without a thread and without a transaction. Answers to callers are never delayed. If the MessageBox has too many
messages, only the points that publish more messages than they consume are delayed: the others do not make it larger,
and the backlog may consist of messages for orchestrations (THR-09).
"""

from __future__ import annotations

import threading
import time

from postroom.hosts.orchestrations.instance import ActiveInstance
from postroom.messagebox.connection import Connection
from postroom.messagebox.throttling.load import CHECK_INTERVAL, ThrottleWatch
from postroom.orchestrations.correlation import CALLER
from postroom.orchestrations.driver import PersistencePoint
from postroom.throttling.process_load import find_process_limits
from postroom.throttling.states import Throttle, ThrottleState

_SIZES = (ThrottleState.DATABASE_SIZE, ThrottleState.PUBLISHING_RATE)


class PublishThrottle:
    """The throttle of the orchestrations of a host. All workers share it."""

    def __init__(self, host_id: int) -> None:
        self._watch = ThrottleWatch(host_id, find_process_limits)
        self._lock = threading.Lock()

    def read(self, connection: Connection) -> Throttle | None:
        """Return what delays the publishes of orchestrations now."""
        with self._lock:
            return self._watch.current(connection, None)


def find_delay(instance: ActiveInstance, throttle: Throttle) -> float:
    """Return the seconds after which the persistence point of an instance is looked at again, or 0 if it may be stored
    now."""
    point = instance.point
    if point is None or not count_publishes(point) or not is_delayed(point, throttle):
        return 0.0
    now = time.monotonic()
    instance.delayed_since = instance.delayed_since or now
    return max(0.0, min(CHECK_INTERVAL, instance.delayed_since + throttle.delay - now))


def is_delayed(point: PersistencePoint, throttle: Throttle) -> bool:
    """Return True if the throttle delays a persistence point that publishes."""
    return throttle.state not in _SIZES or count_publishes(point) > len(point.consumed)


def count_publishes(point: PersistencePoint) -> int:
    """Return the number of messages that a persistence point publishes, without answers to callers."""
    return sum(send.direct_port != CALLER for send in point.sends)
