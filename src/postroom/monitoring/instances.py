"""Metrics of service instances: how many there are by host and state, and the age of the oldest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connect
from postroom.messagebox.instance_states import InstanceState
from postroom.monitoring.metrics import Metric

_COUNT_SECONDS = 10.0
#: What count_instances_<host> calls the messages that orchestrations hold.
_STATE_REFERENCES = 0


@dataclass(frozen=True, kw_only=True)
class InstanceCount:
    """The instances of a host in one state. Without a state it is the number of messages that orchestrations hold."""

    host: str
    state: InstanceState | None
    count: int
    age: float
    """Of the oldest one, in seconds."""


class InstanceMetrics:
    """Counts instances with ``count``. That reads all queues, so it may take 5 % of the time."""

    def __init__(self, count: Callable[[], Iterable[InstanceCount]]) -> None:
        self._count = count
        self._counts: list[InstanceCount] = []
        self._next_count = 0.0

    def collect(self) -> Iterator[Metric]:
        counts = self._count_if_due()
        by_state = {(one.host, one.state.label): one for one in counts if one.state is not None}
        yield Metric.gauge(
            "postroom_instances",
            "Service instances by host and state.",
            {labels: one.count for labels, one in by_state.items()},
            labels=("host", "state"),
        )
        yield Metric.gauge(
            "postroom_oldest_instance_seconds",
            "Age of the oldest service instance by host and state.",
            {labels: one.age for labels, one in by_state.items()},
            labels=("host", "state"),
        )
        yield Metric.gauge(
            "postroom_state_references",
            "Messages that the orchestrations of the host hold.",
            {(one.host,): one.count for one in counts if one.state is None},
            labels=("host",),
        )

    def _count_if_due(self) -> list[InstanceCount]:
        started = time.monotonic()
        if started >= self._next_count:
            try:
                self._counts = list(self._count())
            except PostroomError:
                self._counts = []
            self._next_count = started + max(_COUNT_SECONDS, 20 * (time.monotonic() - started))
        return self._counts


def count_own_instances(connect: Connect, host: str) -> list[InstanceCount]:
    """Count the instances of a host with its own login. States without instances are included."""
    with connect() as connection:
        rows = connection.execute(f"SELECT state, instances, age FROM count_instances_{host.lower()}()").fetchall()
    known = {state: (count, age or 0.0) for state, count, age in rows}
    counts = []
    for state in (*InstanceState, None):
        count, age = known.get(_STATE_REFERENCES if state is None else int(state), (0, 0.0))
        counts.append(InstanceCount(host=host, state=state, count=count, age=age))
    return counts
