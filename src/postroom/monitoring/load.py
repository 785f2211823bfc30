"""Metrics of the load of the MessageBox, and of the throttling of a host."""

from __future__ import annotations

from collections.abc import Iterator

from postroom.errors import PostroomError
from postroom.messagebox.configuration import Host
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.streams.throttle import Load, calculate_throttle, read_load
from postroom.monitoring.metrics import Metric


class LoadMetrics:
    """Reads the load for a host. It connects to the MessageBox when it is asked for the first time."""

    def __init__(self, host: Host, connect: Connect) -> None:
        self._host = host
        self._connection = LazyConnection(connect)

    def close(self) -> None:
        self._connection.close()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics. Without the MessageBox there is only the one that shows this."""
        load = self._read()
        answers = "1 if the MessageBox answers this process."
        yield Metric.gauge("postroom_messagebox_up", answers, {(): float(load is not None)})
        if load is None:
            return
        queued = "Messages in all queues of the MessageBox. The same in every process."
        yield Metric.gauge("postroom_messagebox_queued_messages", queued, {(): load.queued})
        spooled = "Messages in the spool of the MessageBox. The same in every process."
        yield Metric.gauge("postroom_messagebox_spooled_messages", spooled, {(): load.spooled})
        throttle = calculate_throttle(
            queued=load.queued,
            spooled=load.spooled,
            messages=load.messages,
            spool_multiplier=load.spool_multiplier,
            longest_delay=load.longest_delay,
        )
        labels, host = ("host",), (self._host.name,)
        severity = "How much receiving is throttled: 0 not at all, 1 as much as possible."
        yield Metric.gauge(
            "postroom_throttle_severity", severity, {host: throttle.severity if throttle else 0.0}, labels=labels
        )
        delay = "Seconds between two batches of a throttled receive location."
        yield Metric.gauge(
            "postroom_throttle_delay_seconds", delay, {host: throttle.delay if throttle else 0.0}, labels=labels
        )

    def _read(self) -> Load | None:
        try:
            return read_load(self._connection.get(), self._host.host_id)
        except PostroomError:
            self._connection.close()
            return None
