"""Finds all problems of an application in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, get_args

from postroom.application.checks.bulk import bulk_map_problems, bulk_problems
from postroom.application.checks.fields import (
    adapter_problems,
    description_problems,
    filter_problems,
    host_name_problems,
    host_problems,
    name_problems,
    state_problems,
)
from postroom.application.checks.groups import group_problems
from postroom.application.checks.lookups import lookup_problems
from postroom.application.checks.orchestrations import orchestration_problems
from postroom.application.checks.properties import list_known_properties, property_problems
from postroom.application.checks.transports import schedule_problems, transport_problems
from postroom.application.checks.two_way_ports import two_way_receive_problems, two_way_send_problems
from postroom.application.declarations import Declarations, Declared
from postroom.application.definition import DEFAULT_HOST, MAX_DEQUEUE_THREADS, Authentication, SendPortSettings
from postroom.application.handler import Handler
from postroom.application.source_position import SourcePosition
from postroom.errors import BadValue, Problem
from postroom.maps.port_maps import map_problems
from postroom.pipelines import Receive, ReceivePipeline, Send
from postroom.properties import Property
from postroom.throttling import Throttling


def find_declaration_problems(application: Declarations) -> list[Problem]:
    """Return every problem, by file and line."""
    found: list[Problem] = []

    def add(position: SourcePosition, texts: Iterable[str]) -> None:
        found.extend(map(position.problem, texts))

    found += application.schema_problems
    add(application.position, name_problems("application", application.name))
    hosts = {DEFAULT_HOST.lower()}
    for host in application.hosts:
        unusable = list(host_name_problems(host.name))
        add(host.position, unusable)
        if not unusable:
            hosts.add(host.name.lower())
        add(host.position, (f"{_label('host', host)}: {text}" for text in _host_statement_problems(host)))
    for declared in application.properties:
        if not isinstance(declared.property, Property):
            add(declared.position, [f"{declared.property!r} is not a property; write app.property(Region)."])

    locations = [location for port in application.receive_ports for location in port.locations]
    for receive_port in application.receive_ports:
        texts = [*_flag_problems("route_failures", receive_port.route_failures)]
        if receive_port.authentication not in get_args(Authentication):
            choices = ", ".join(get_args(Authentication))
            texts.append(f"authentication is {receive_port.authentication!r}, but must be one of {choices}.")
        texts += map_problems(receive_port.maps, receive_port.position.folder)
        texts += bulk_map_problems(receive_port)
        texts += two_way_receive_problems(receive_port)
        add(receive_port.position, (f"{_label('receive port', receive_port)}: {text}" for text in texts))
        add(receive_port.position, name_problems("receive port", receive_port.name))
    for location in locations:
        add(
            location.position,
            (f"{_label('location', location)}: {text}" for text in _location_problems(location, hosts)),
        )
        add(location.position, name_problems("location", location.name))
    known = list_known_properties(application)
    for port in application.send_ports:
        add(port.position, (f"{_label('send port', port)}: {text}" for text in _send_port_problems(port, hosts, known)))
        add(port.position, name_problems("send port", port.name))
    found += group_problems(application, known)
    found += orchestration_problems(application, hosts)
    found += lookup_problems(application, hosts, known)

    found += _duplicate_names("hosts", application.hosts, "Declare it once.", lower=True)
    found += _duplicate_names(
        "receive ports", application.receive_ports, "Chain the locations: .location(...).location(...)."
    )
    found += _duplicate_names("locations", locations, "The name of a location is unique among all receive ports.")
    found += _duplicate_names("send ports", application.send_ports, "Give one of them another name.")
    found += _duplicate_names("send port groups", application.send_port_groups, "Give one of them another name.")
    found += _duplicate_names("lookups", application.lookups, "Give one of them another name.")
    found += _renaming_problems("location", locations)
    found += _renaming_problems("send port", application.send_ports)
    found += _renaming_problems("receive port", application.receive_ports)
    for version in {one.orchestration.version for one in application.orchestrations}:
        found += _renaming_problems(
            "orchestration", [one for one in application.orchestrations if one.orchestration.version == version]
        )
    found += _renaming_problems("lookup", application.lookups)
    found += property_problems(application)
    return sorted(dict.fromkeys(found), key=lambda problem: (problem.file, problem.line))


def as_values(given: object) -> Sequence[object]:
    """Return the values that a host has of one property. It may be declared with one value or with a list."""
    return given if isinstance(given, list | tuple) else (given,)


def _host_statement_problems(host: Declared) -> Iterator[str]:
    if host.trusted not in (None, True, False):
        yield f"trusted is {host.trusted!r}, but must be True or False."
    if host.isolated not in (None, True, False):
        yield f"isolated is {host.isolated!r}, but must be True or False."
    if host.isolated and host.name.lower() == DEFAULT_HOST.lower():
        yield f"{DEFAULT_HOST} is the default host, which cannot be isolated. Declare another host."
    if host.max_hops is not None and (type(host.max_hops) is not int or host.max_hops < 1):
        yield f"max_hops is {host.max_hops!r}, but must be a number above 0."
    if host.threads is not None and not _is_thread_count(host.threads):
        yield f"threads is {host.threads!r}, but must be a number from 1 to {MAX_DEQUEUE_THREADS}."
    if isinstance(host.throttling, Throttling):
        yield from host.throttling.problems()
    elif host.throttling is not None:
        yield f"throttling is {host.throttling!r}, but must be something like Throttling(messages=50_000)."
    yield from _handler_problems(host.handlers)
    if host.properties is None:
        return
    if not isinstance(host.properties, Mapping):
        yield f"properties is {host.properties!r}, but must be something like {{Thumbprint: 'A909'}}."
        return
    for prop, given in host.properties.items():
        if not isinstance(prop, Property):
            yield f"{prop!r} is not a property; write properties={{Thumbprint: 'A909'}}."
            continue
        for value in as_values(given):
            try:
                if prop.check(value) == "":
                    yield f"{prop.dotted_name} is an empty text, which no message can ask for."
            except BadValue as error:
                yield error.what


def _is_thread_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DEQUEUE_THREADS


def _handler_problems(handlers: object) -> Iterator[str]:
    if handlers is None:
        return
    if (
        not isinstance(handlers, list | tuple)
        or not handlers
        or not all(isinstance(each, Handler) for each in handlers)
    ):
        yield f"handlers is {handlers!r}, but must be a list such as [Handler('http', 'send')]."
        return
    for handler, count in Counter(handler.key for handler in handlers).items():
        if count > 1:
            yield f"handlers has {' '.join(handler)} {count} times; declare it once."
    for handler in handlers:
        yield from (f"handler {handler}: {text}" for text in handler.problems())


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def position(self) -> SourcePosition: ...


def _label(what: str, declared: _Named) -> str:
    return f"{what} {declared.name!r}"


def _duplicate_names(what: str, declared: Iterable[_Named], advice: str, *, lower: bool = False) -> Iterator[Problem]:
    first: dict[Hashable, _Named] = {}
    for each in declared:
        if not isinstance(each.name, str):
            continue
        other = first.setdefault(each.name.lower() if lower else each.name, each)
        if other is not each:
            where = f"{other.position.file}:{other.position.line}"
            yield each.position.problem(f"there are two {what} named {each.name!r}; the other is in {where}. {advice}")


def _renaming_problems(what: str, declared: Iterable[Declared]) -> Iterator[Problem]:
    """Yield old names that are no names, that are the new name, or that two objects claim."""
    first: dict[str, Declared] = {}
    for each in declared:
        old = each.renamed_from
        if old is None:
            continue
        label = _label(what, each)
        if not isinstance(old, str) or not old:
            yield each.position.problem(f"{label}: renamed_from is {old!r}, but must be the old name.")
        elif old == each.name:
            yield each.position.problem(f"{label}: renamed_from is its own name. Write its old name, or leave it out.")
        elif (other := first.setdefault(old, each)) is not each:
            yield each.position.problem(
                f"{label}: renamed_from is {old!r}, but {other.name!r} is renamed from it too. One of them keeps it."
            )


def _location_problems(location: Declared, hosts: Collection[str]) -> Iterator[str]:
    yield from adapter_problems(location.adapter, "receive")
    if location.pipeline is not None:
        if isinstance(location.pipeline, ReceivePipeline):
            texts = location.pipeline.problems()
            if not texts and isinstance(location.pipeline, Receive):
                texts = location.pipeline.packing_problems(location.position.folder)
            yield from (f"pipeline: {text}" for text in texts)
        else:
            yield f"{location.pipeline!r} is not a pipeline, such as pipelines.Json(...)."
    yield from bulk_problems(location.adapter, location.pipeline)
    yield from host_problems(location.host, hosts)
    if not isinstance(location.enabled, bool):
        yield f"enabled is {location.enabled!r}, but must be True or False."
    yield from schedule_problems("schedule", location.schedule)


def _send_port_problems(port: Declared, hosts: Collection[str], known: list[Property]) -> Iterator[str]:
    yield from adapter_problems(port.adapter, "send")
    yield from filter_problems(port.filter, known)
    yield from transport_problems(port)
    if type(port.priority) is not int or not 1 <= port.priority <= 10:
        yield f"priority is {port.priority!r}, but must be between 1 (first) and 10."
    yield from host_problems(port.host, hosts)
    yield from state_problems(port.state)
    yield from description_problems(port.description)
    for name, field in SendPortSettings.model_fields.items():
        if field.annotation is bool:
            yield from _flag_problems(name, getattr(port, name))
    yield from map_problems(port.maps, port.position.folder)
    if isinstance(port.pipeline, Send):
        texts = port.pipeline.problems() or port.pipeline.packing_problems(port.position.folder)
        yield from (f"pipeline: {text}" for text in texts)
    elif port.pipeline is not None:
        yield f"{port.pipeline!r} is not a send pipeline; write pipelines.Send(...)."
    yield from two_way_send_problems(port)


def _flag_problems(name: str, value: object) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{name} is {value!r}, but must be True or False."
