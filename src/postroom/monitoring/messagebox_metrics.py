"""Metrics of the MessageBox: its load, the throttling of a host, and service instances by host and state."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from postroom.errors import PostroomError
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.instances import InstanceCount
from postroom.messagebox.throttling.load import FindProcessLimits, Load, measure_tables, read_load
from postroom.monitoring.metrics import Metric
from postroom.throttling.states import LastingState, Throttle, ThrottleState

#: The throttle of a direction, and its state.
Throttled = tuple[Throttle | None, LastingState]
_COUNT_SECONDS = 10.0


class LoadMetrics:
    """Reads the load for a host. It connects to the MessageBox when it is asked for the first time.

    ``find_process_limits`` adds the limits of this process to those of the MessageBox. ``get_delivery`` returns the
    throttling of the delivery, in a process that delivers.
    """

    def __init__(
        self,
        host: Host,
        connect: Connect,
        *,
        find_process_limits: FindProcessLimits = lambda _: (),
        get_delivery: Callable[[], Throttled] | None = None,
    ) -> None:
        self._host = host
        self._connection = LazyConnection(connect)
        self._find_process_limits = find_process_limits
        self._get_delivery = get_delivery
        self._publishing = LastingState()

    def close(self) -> None:
        self._connection.close()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. Without the MessageBox there are only those of this process."""
        load = self._read()
        answers = "1 if the MessageBox answers this process."
        yield Metric("gauge", "postroom_messagebox_up", answers, {(): float(load is not None)})
        throttled = {} if self._get_delivery is None else {"delivery": self._get_delivery()}
        if load is not None:
            queued = "Messages in all queues of the MessageBox. The same in every process."
            yield Metric("gauge", "postroom_messagebox_queued_messages", queued, {(): load.queued})
            spooled = "Messages in the spool of the MessageBox. The same in every process."
            yield Metric("gauge", "postroom_messagebox_spooled_messages", spooled, {(): load.spooled})
            yield Metric(
                "gauge",
                "postroom_messagebox_bytes",
                "Bytes on disk by content. The same in every process.",
                {(content,): size for content, size in self._measure_tables().items()},
                labels=("content",),
            )
            throttle = load.get_throttle(None, self._find_process_limits(load.throttling))
            self._publishing.update(throttle)
            throttled["publishing"] = (throttle, self._publishing)
        yield from _collect_throttling(self._host.name, throttled)

    def _measure_tables(self) -> Mapping[str, int]:
        try:
            return measure_tables(self._connection.get())
        except PostroomError:
            return {}

    def _read(self) -> Load | None:
        try:
            return read_load(self._connection.get(), self._host.host_id)
        except PostroomError:
            self._connection.close()
            return None


def _collect_throttling(host: str, throttled: Mapping[str, Throttled]) -> Iterator[Metric]:
    def gauge(name: str, help: str, get_value: Callable[[Throttle], float]) -> Metric:
        values: dict[tuple[str, ...], float] = {
            (host, direction): 0.0 if throttle is None else get_value(throttle)
            for direction, (throttle, _) in throttled.items()
        }
        return Metric("gauge", name, help, values, labels=("host", "direction"))

    states = ", ".join(f"{state.value} {state.label}" for state in ThrottleState)
    yield gauge("postroom_throttle_state", f"Why the host is throttled: {states}.", lambda it: float(it.state))
    severity = "How much the host is throttled: 0 not at all, 1 as much as possible."
    yield gauge("postroom_throttle_severity", severity, lambda it: it.severity)
    delay = "Seconds between two batches that a throttled host publishes, or between two claims of messages."
    yield gauge("postroom_throttle_delay_seconds", delay, lambda it: it.delay)
    yield Metric(
        "gauge",
        "postroom_throttle_state_seconds",
        "How long the state of the throttling has lasted, as far as this process knows.",
        {(host, direction): lasting.seconds for direction, (_, lasting) in throttled.items()},
        labels=("host", "direction"),
    )


class InstanceMetrics:
    """Counts instances with ``count``. That reads all queues, so it runs for at most 5 % of the time."""

    def __init__(self, connect: Connect, count: Callable[[Connection], Iterable[InstanceCount]]) -> None:
        self._connect = connect
        self._count = count
        self._counts: list[InstanceCount] = []
        self._next_count = 0.0

    def collect(self) -> Iterator[Metric]:
        counts = self._count_if_due()
        by_state = {(one.host, one.state): one for one in counts if one.state is not None}
        yield Metric(
            "gauge",
            "postroom_instances",
            "Service instances by host and state.",
            {labels: one.instances for labels, one in by_state.items()},
            labels=("host", "state"),
        )
        yield Metric(
            "gauge",
            "postroom_instance_messages",
            "Messages of service instances by host and state.",
            {labels: one.messages for labels, one in by_state.items()},
            labels=("host", "state"),
        )
        yield Metric(
            "gauge",
            "postroom_oldest_instance_seconds",
            "Age of the oldest message of service instances by host and state.",
            {labels: one.age for labels, one in by_state.items()},
            labels=("host", "state"),
        )
        yield Metric(
            "gauge",
            "postroom_state_references",
            "Messages that the orchestrations of the host hold.",
            {(one.host,): one.messages for one in counts if one.state is None},
            labels=("host",),
        )

    def _count_if_due(self) -> list[InstanceCount]:
        started = time.monotonic()
        if started >= self._next_count:
            try:
                with self._connect() as connection:
                    self._counts = list(self._count(connection))
            except PostroomError:
                self._counts = []
            self._next_count = started + max(_COUNT_SECONDS, 20 * (time.monotonic() - started))
        return self._counts
