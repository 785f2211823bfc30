"""The pauses of publishers while they are throttled."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

from postroom.errors import Throttled
from postroom.messagebox.connection import Connection
from postroom.messagebox.throttling.load import CHECK_INTERVAL, ThrottleWatch
from postroom.throttling.states import Throttle

#: Maximum time that a task waits, in seconds. After that it ends and is run again.
MAX_WAIT = 5.0
#: How long a publish waits while programs are throttled, in seconds.
PUBLISH_WAIT = 30.0


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
        try:
            for pause in find_pauses(self._get_throttle, self._remaining_wait):
                self._sleep(pause)
                self._remaining_wait -= pause
        except Throttled:
            return False
        return True

    def _get_throttle(self) -> Throttle | None:
        return self._watch.current(self._connection, self._location_id)


def find_pauses(get_throttle: Callable[[], Throttle | None], max_wait: float = PUBLISH_WAIT) -> Iterator[float]:
    """Yield the seconds to wait before a publish: the delay of the throttle, in pieces, as long as it is throttled.

    Raise Throttled after ``max_wait`` seconds."""
    waited = 0.0
    while (throttle := get_throttle()) is not None and waited < throttle.delay:
        pause = min(throttle.delay - waited, max_wait - waited, CHECK_INTERVAL)
        if pause <= 0:
            raise Throttled(
                f"The MessageBox takes no more messages now: {throttle.reason}.",
                why=f"It was throttled for {waited:.0f} s, and nothing was published.",
                hint=f"Publish again in {throttle.delay:.0f} s. 'postroom queue list' shows what waits, and "
                "'postroom throttling list' the thresholds that are exceeded.",
            )
        yield pause
        waited += pause
