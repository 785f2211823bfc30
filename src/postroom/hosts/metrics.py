"""The metrics of a host instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from postroom.hosts.dequeue.subservice import Subservice
from postroom.hosts.registration import Registration
from postroom.monitoring.metrics import Metric
from postroom.receiving.http.locations import HttpLocations


def collect_host_metrics(
    host: str, messaging: Subservice, http: HttpLocations, registration: Registration
) -> Iterator[Metric]:
    """Yield the metrics of an instance of a host."""
    yield Metric(
        "counter",
        "postroom_messages",
        "Messages that the host has taken from its queue, by outcome.",
        {(host, outcome): count for outcome, count in messaging.counts.items()},
        labels=("host", "outcome"),
    )
    handled, seconds = messaging.handling_time
    yield Metric(
        "summary",
        "postroom_delivery_seconds",
        "Time for one attempt to deliver a message.",
        {(host,): (handled, seconds)},
        labels=("host",),
    )
    yield Metric(
        "summary",
        "postroom_queue_seconds",
        "Time from the queueing of a message, or its resuming, to the claim of an attempt to deliver it.",
        {(host,): (handled, messaging.waiting_seconds)},
        labels=("host",),
    )
    yield Metric(
        "gauge",
        "postroom_messages_in_progress",
        "Messages that the host is delivering, or whose outcome is not stored yet.",
        {(host,): messaging.unfinished_count},
        labels=("host",),
    )
    yield Metric(
        "counter",
        "postroom_regained_locks",
        "How often the host instance has lost its lock and acquired it again.",
        {(host,): registration.regained_locks},
        labels=("host",),
    )
    yield from _collect_http_metrics(host, http)


def _collect_http_metrics(host: str, http: HttpLocations) -> Iterator[Metric]:
    by_status, seconds = http.counts.by_status.copy(), http.counts.seconds.copy()
    yield Metric(
        "counter",
        "postroom_http_requests",
        "HTTP requests by location and status. Without a location, no location has the path of the request.",
        {(host, location, status): count for (location, status), count in by_status.items()},
        labels=("host", "location", "status"),
    )
    ended: Counter[str] = Counter()
    for (location, _), count in by_status.items():
        ended[location] += count
    yield Metric(
        "summary",
        "postroom_http_request_seconds",
        "Time from the head of an HTTP request to the end of its response.",
        {(host, location): (count, seconds[location]) for location, count in ended.items()},
        labels=("host", "location"),
    )
    yield Metric(
        "gauge",
        "postroom_http_requests_in_progress",
        "HTTP requests in progress, including those that wait for the response of a two-way port.",
        {(host, location): count for location, count in http.counts.in_progress.copy().items()},
        labels=("host", "location"),
    )
    yield Metric(
        "gauge",
        "postroom_http_connections",
        "Open HTTP connections by port.",
        {(host, str(port)): count for port, count in http.connections.items()},
        labels=("host", "port"),
    )
