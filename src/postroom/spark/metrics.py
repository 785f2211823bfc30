"""The metrics of a pipeline process: its receive locations, its sinks and Spark's batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from postroom.messagebox.streams.location_progress import LocationProgress, LocationState
from postroom.monitoring.metrics import Metric
from postroom.receiving.task import OUTCOMES
from postroom.spark.receive.running_location import RunningLocation
from postroom.spark.sinks.running_sinks import Sinks


def collect_pipeline_metrics(host: str, running: Sequence[RunningLocation], sinks: Sinks) -> Iterator[Metric]:
    """Yield the metrics of the pipeline process of a host."""
    yield Metric.counter(
        "postroom_received",
        "What the location has received since it was started, by outcome: files are interchanges, the others messages.",
        {
            (host, location.location.name, outcome): location.counts[outcome]
            for location in running
            for outcome in OUTCOMES
        },
        labels=("host", "location", "outcome"),
    )
    yield Metric.summary(
        "postroom_receive_seconds",
        "Time from the arrival of a file or an interchange to its publication.",
        {
            (host, location.location.name): (location.counts["files"], location.milliseconds / 1000)
            for location in running
        },
        labels=("host", "location"),
    )
    yield Metric.counter(
        "postroom_batches",
        "Batches of Spark that have ended at the location since it was started.",
        {(host, location.location.name): location.batches for location in running},
        labels=("host", "location"),
    )
    progress = {location.location.name: location.get_progress() for location in running}
    yield Metric.gauge(
        "postroom_location_state",
        "1 for the state of the location, 0 for the other states.",
        {
            (host, name, state.value): float(progress[name].state is state)
            for name in progress
            for state in LocationState
        },
        labels=("host", "location", "state"),
    )
    yield Metric.counter(
        "postroom_sink_batches",
        "Batches that were written to the sink since the process was started.",
        {(host, sink): count for sink, count in sinks.batches.copy().items()},
        labels=("host", "sink"),
    )
    yield Metric.counter(
        "postroom_sink_messages",
        "Messages that were written to the sink since the process was started.",
        {(host, sink): count for sink, count in sinks.written.copy().items()},
        labels=("host", "sink"),
    )


def describe_problem(name: str, progress: LocationProgress) -> str | None:
    """Return why a location receives nothing, or None."""
    if progress.state is LocationState.STARTING:
        return f"{name} is starting."
    return f"{name}: {progress.reason}" if progress.state is LocationState.FAILING else None
