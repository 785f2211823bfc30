"""The pauses of publishers while they are throttled."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from postroom.messagebox.connection import Connection
from postroom.messagebox.throttling.load import CHECK_INTERVAL, ThrottleWatch

#: Maximum time that a task waits, in seconds. After that it ends and is run again.
MAX_WAIT = 5.0


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
            pause = min(throttle.delay - waited, self._remaining_wait, CHECK_INTERVAL)
            if pause <= 0:
                return False
            self._sleep(pause)
            waited += pause
            self._remaining_wait -= pause
        return True
