"""How tasks that publish rows slow down while too much waits in the MessageBox (THR-04, THR-05)."""

from __future__ import annotations

import time
from collections.abc import Callable

from postroom.messagebox.connection import Connection
from postroom.messagebox.throttling import ThrottleWatch

#: A task that waits keeps its place on a core, which others may need to take messages away: sinks are tasks, too.
LONGEST_PAUSE = 5.0


class Pace:
    """The pauses of one task, between its chunks."""

    def __init__(self, connection: Connection, host_id: int, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._connection = connection
        self._watch = ThrottleWatch(host_id)
        self._sleep = sleep

    def __call__(self) -> None:
        throttle = self._watch.current(self._connection)
        if throttle is not None:
            self._sleep(min(throttle.delay, LONGEST_PAUSE))
