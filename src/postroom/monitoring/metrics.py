"""Metrics of a process, in the format of Prometheus.

    Metric.counter("postroom_messages", "Messages by outcome.", {("Main", "completed"): 12}, labels=("host", "outcome"))

A metric is built from existing counters when it is scraped. Without a scrape it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True)
class Metric:
    """A metric with its values by label values. The value of a summary is (count, sum)."""

    kind: Literal["counter", "gauge", "summary"]
    name: str
    help: str
    values: Mapping[tuple[str, ...], float | tuple[float, float]]
    labels: tuple[str, ...] = ()


class MonitoredProcess(Protocol):
    """A process with metrics. Its methods are called from other threads."""

    def collect_metrics(self) -> Iterable[Metric]:
        """Return the current metrics."""
        ...

    def find_problems(self) -> list[str]:
        """Return the reasons why the process cannot do its work at the moment."""
        ...


def format_metrics(metrics: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """Return the metrics, and those of the operating system for this process, with their content type. ``accept`` is
    the header of the request."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Families(list(metrics)))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Families:
    """Metrics as a collector of prometheus-client."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

        families: dict[str, Any] = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "summary": SummaryMetricFamily,
        }
        for metric in self._metrics:
            family = families[metric.kind](metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.values.items():
                if isinstance(value, tuple):
                    family.add_metric(labels, count_value=value[0], sum_value=value[1])
                else:
                    family.add_metric(labels, value)
            yield family
