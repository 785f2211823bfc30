"""The metrics of the receive locations that a process serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from postroom.messagebox.intake.location_progress import LocationMeter
from postroom.monitoring.metrics import Metric
from postroom.receiving.task import OUTCOMES


def collect_location_metrics(host: str, locations: Mapping[str, LocationMeter]) -> Iterator[Metric]:
    """Yield the metrics of the locations of a host by their names."""
    yield Metric(
        "counter",
        "postroom_received",
        "What the location has received since it was started, by outcome: files are interchanges, the others messages.",
        {(host, name, outcome): meter.counts[outcome] for name, meter in locations.items() for outcome in OUTCOMES},
        labels=("host", "location", "outcome"),
    )
