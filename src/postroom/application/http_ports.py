"""HTTP receive locations that cannot be served together: a port belongs to one host, and has each path once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from postroom.adapters.http.receive_definition import HttpReceive
from postroom.application.definition import ApplicationDefinition, ReceiveLocationDefinition
from postroom.errors import Problem


def http_port_problems(new: ApplicationDefinition, others: Iterable[ApplicationDefinition]) -> Iterator[Problem]:
    """What stands between the HTTP locations of an application, among themselves and with those that are deployed."""
    known = [pair for other in others if other.name != new.name for pair in _http(other)]
    for location, adapter in _http(new):
        for other, theirs in known:
            if (adapter.listen, adapter.port) == (theirs.listen, theirs.port):
                for text in _conflicts(location, adapter, other, theirs):
                    text = f"location {location.name!r}: {text} (location {other.name!r})."
                    yield Problem(text, location.place.file, location.place.line)
        known.append((location, adapter))


def _http(application: ApplicationDefinition) -> Iterator[tuple[ReceiveLocationDefinition, HttpReceive]]:
    for port in application.receive_ports:
        for location in port.locations:
            if isinstance(location.adapter, HttpReceive):
                yield location, location.adapter


def _conflicts(
    location: ReceiveLocationDefinition,
    adapter: HttpReceive,
    other: ReceiveLocationDefinition,
    theirs: HttpReceive,
) -> Iterator[str]:
    if location.host.lower() != other.host.lower():
        yield f"port {adapter.port} belongs to the host {other.host!r}"
    elif (adapter.certificate, adapter.key) != (theirs.certificate, theirs.key):
        yield f"port {adapter.port} has another certificate"
    elif adapter.path == theirs.path:
        yield f"the path {adapter.path} of port {adapter.port} is taken"
