"""Metrics of service instances: how many there are by host and state, their messages, and the age of the oldest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.instances import InstanceCount
from postroom.monitoring.metrics import Metric

_COUNT_SECONDS = 10.0


class InstanceMetrics:
    """Counts instances with ``count``. That reads all queues, so it runs for at most 5 % of the time."""

    def __init__(self, connect: Connect, count: Callable[[Connection], Iterable[InstanceCount]]) -> None:
        self._connect = connect
        self._count = count
        self._counts: list[InstanceCount] = []
        self._next_count = 0.0

    def collect(self) -> Iterator[Metric]:
        counts = self._count_if_due()
        by_state = {(one.host, one.state.label): one for one in counts if one.state is not None}
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
