"""Throttles the delivery of a host instance: while a limit is exceeded, its pollers claim fewer messages, less often
(THR-02).

A delay holds neither a transaction nor a dequeue thread: only claims wait. Messages that are not claimed stay in the
queue, where other instances of the host find them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.coordination.running_processes import report_throttles
from postroom.processes.background_loop import BackgroundLoop
from postroom.throttling.process_load import PROCESSORS, find_process_limits
from postroom.throttling.rates import RateWindow, get_rate_limit
from postroom.throttling.states import (
    LastingState,
    Limit,
    Throttle,
    ThrottleState,
    apply_override,
    find_throttle,
)

_log = logging.getLogger(__name__)

_MEASURE_SECONDS = 1.0
#: While the instance is throttled, its reason and delay are reported this often.
_REPORT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Flow:
    """The messages of an instance: claimed and finished since its start, and in memory now."""

    claimed: int
    finished: int
    in_process: int


class DeliveryThrottle:
    """Measures this process every second. Reports changes of its throttling in the MessageBox and in the log.

    ``count_flow`` counts the messages of messaging and of orchestrations, which are throttled together (THR-09).
    """

    def __init__(self, *, host: Host, host_instance: int, connect: Connect, count_flow: Callable[[], Flow]) -> None:
        #: The host with its thresholds and its override. Replaced when the configuration changes.
        self.host = host
        self._host_instance = host_instance
        self._connection = LazyConnection(connect)
        self._count_flow = count_flow
        self._window = RateWindow()
        self._limits: Sequence[Limit] = ()
        self._is_reported = True
        self._report_at = 0.0
        self.delivery = LastingState()
        self._publishing = LastingState()
        self.loop = BackgroundLoop("throttling", self._step)

    def close(self) -> None:
        self._connection.close()

    def current(self) -> Throttle | None:
        """Return the throttle of the delivery, or None. The pollers ask for it before each claim."""
        throttling = self.host.throttling
        in_process = Limit(
            state=ThrottleState.IN_PROCESS,
            value=self._count_flow().in_process,
            threshold=throttling.in_process * PROCESSORS,
            what="messages are in process",
        )
        return apply_override(
            find_throttle([*self._limits, in_process], longest_delay=throttling.longest_delay),
            self.host.overrides.delivery,
            state=ThrottleState.DELIVERY_OVERRIDE,
            longest_delay=throttling.longest_delay,
        )

    def _step(self) -> float:
        throttling, flow = self.host.throttling, self._count_flow()
        self._window.update(flow.claimed, flow.finished)
        process_limits = find_process_limits(throttling)
        rate = get_rate_limit(
            ThrottleState.DELIVERY_RATE,
            *self._window.counts,
            overdrive=throttling.overdrive,
            what="messages were claimed",
        )
        self._limits = [*process_limits, rate]
        delivery = self.current()
        if self.delivery.update(delivery):
            self._is_reported = False
            if delivery is None:
                _log.info("delivery is no longer throttled")
            else:
                _log.warning("delivery is throttled: %s", delivery.reason)
        publishing = find_throttle(process_limits, longest_delay=throttling.longest_delay)
        if self._publishing.update(publishing):
            self._is_reported = False
        if not self._is_reported or ((delivery or publishing) and time.monotonic() >= self._report_at):
            self._report(delivery, publishing)
        return _MEASURE_SECONDS

    def _report(self, delivery: Throttle | None, publishing: Throttle | None) -> None:
        states = (("delivery", delivery, self.delivery), ("publishing", publishing, self._publishing))
        throttles = {
            direction: {**asdict(throttle), "since": lasting.since.isoformat()}
            for direction, throttle, lasting in states
            if throttle is not None
        }
        report_throttles(self._connection.get(), self._host_instance, throttles)
        self._is_reported = True
        self._report_at = time.monotonic() + _REPORT_SECONDS
