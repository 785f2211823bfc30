"""The valid part of an application, which can be compared with what is deployed although the rest is not valid."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace

from postroom.application.checks.problems import problems_of
from postroom.application.checks.properties import uses
from postroom.application.declarations import Declarations, DeclaredProperty
from postroom.application.define import define
from postroom.application.definition import ApplicationDefinition
from postroom.application.place import Place

_Places = set[tuple[str, int]]


def valid_subset(application: Declarations) -> ApplicationDefinition | None:
    """Return what is declared without a problem and needs nothing that has one. None if the problem is with all of it.

    Properties that any part makes known stay known, so that a location with a problem does not remove every filter.
    """
    part = copy.copy(application)
    part.schema_problems = []
    part.properties = [*application.properties, *_known_properties(application)]
    while problems := problems_of(part):
        before = _count(part)
        _remove_at(part, {(problem.file, problem.line) for problem in problems})
        if _count(part) == before:
            return None
    return define(part)


def _known_properties(application: Declarations) -> Iterable[DeclaredProperty]:
    known = {use.property.key: use for use in uses(application) if use.makes_known}
    return [DeclaredProperty(property=use.property, place=application.place) for use in known.values()]


def _remove_at(part: Declarations, places: _Places) -> None:
    gone = {str(host.name).lower() for host in part.hosts if _at(host.place) in places}
    part.hosts = [host for host in part.hosts if _at(host.place) not in places]
    part.properties = [each for each in part.properties if _at(each.place) not in places]
    # A port may stand in the line of its location; if the problem is its own, it comes again.
    located = {_at(one.place) for port in part.receive_ports for one in port.locations}
    part.receive_ports = [
        replace(port, locations=[one for one in port.locations if not _is_removed(one.place, one.host, places, gone)])
        for port in part.receive_ports
        if _at(port.place) not in places - located
    ]
    part.send_ports = [port for port in part.send_ports if not _is_removed(port.place, port.host, places, gone)]
    part.send_port_groups = [group for group in part.send_port_groups if _at(group.place) not in places]


def _is_removed(place: Place, host: object, places: _Places, hosts: set[str]) -> bool:
    """What is said of a host that is left out is not known: nor is what becomes of who needs it."""
    return _at(place) in places or str(host).lower() in hosts


def _at(place: Place) -> tuple[str, int]:
    return place.file, place.line


def _count(part: Declarations) -> int:
    locations = sum(len(port.locations) for port in part.receive_ports)
    ports = len(part.receive_ports) + len(part.send_ports) + len(part.send_port_groups)
    return len(part.hosts) + len(part.properties) + locations + ports
