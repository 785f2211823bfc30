"""The metrics of the receive locations that a process serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from postroom.messagebox.intake.location_progress import LocationMeter, LocationState
from postroom.monitoring.metrics import Metric
from postroom.receiving.task import OUTCOMES


def collect_location_metrics(
    host: str, locations: Mapping[str, tuple[LocationMeter, LocationState]]
) -> Iterator[Metric]:
    """Yield the metrics of the locations of a host by their names."""
    yield Metric(
        "counter",
        "postroom_received",
        "What the location has received since it was started, by outcome: files are interchanges, the others messages.",
        {
            (host, name, outcome): meter.counts[outcome]
            for name, (meter, _) in locations.items()
            for outcome in OUTCOMES
        },
        labels=("host", "location", "outcome"),
    )
    yield Metric(
        "gauge",
        "postroom_location_state",
        "1 for the state of the location, 0 for the other states.",
        {
            (host, name, state.value): float(current is state)
            for name, (_, current) in locations.items()
            for state in LocationState
        },
        labels=("host", "location", "state"),
    )
