"""The valid subset of an application. It is compared with what is deployed although the rest has problems."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace

from postroom.application.checks.problems import find_declaration_problems
from postroom.application.checks.properties import find_uses
from postroom.application.declarations import Declarations, DeclaredProperty
from postroom.application.define import define
from postroom.application.definition import ApplicationDefinition
from postroom.application.source_position import SourcePosition

_Positions = set[tuple[str, int]]


def find_valid_subset(application: Declarations) -> ApplicationDefinition | None:
    """Return what has no problem and needs nothing that has one, or None if the application itself has a problem.

    All properties stay known, so that a location with a problem does not remove every filter.
    """
    part = copy.copy(application)
    part.schema_problems = []
    part.properties = [*application.properties, *_list_known_properties(application)]
    while problems := find_declaration_problems(part):
        before = _count(part)
        _remove_at(part, {(problem.file, problem.line) for problem in problems})
        if _count(part) == before:
            return None
    return define(part)


def _list_known_properties(application: Declarations) -> Iterable[DeclaredProperty]:
    known = {use.property.key: use for use in find_uses(application) if use.makes_known}
    return [DeclaredProperty(property=use.property, position=application.position) for use in known.values()]


def _remove_at(part: Declarations, positions: _Positions) -> None:
    removed = {str(host.name).lower() for host in part.hosts if _to_line(host.position) in positions}
    part.hosts = [host for host in part.hosts if _to_line(host.position) not in positions]
    part.properties = [each for each in part.properties if _to_line(each.position) not in positions]
    # A port may be in the line of its location. A problem of the port itself is found again in the next round.
    located = {_to_line(location.position) for port in part.receive_ports for location in port.locations}
    part.receive_ports = [
        replace(
            port,
            locations=[
                location
                for location in port.locations
                if not _is_removed(location.position, location.host, positions, removed)
            ],
        )
        for port in part.receive_ports
        if _to_line(port.position) not in positions - located
    ]
    part.send_ports = [
        port for port in part.send_ports if not _is_removed(port.position, port.host, positions, removed)
    ]
    part.orchestrations = [
        one for one in part.orchestrations if not _is_removed(one.position, one.host, positions, removed)
    ]
    part.lookups = [one for one in part.lookups if not _is_removed(one.position, one.host, positions, removed)]
    part.send_port_groups = [group for group in part.send_port_groups if _to_line(group.position) not in positions]


def _is_removed(position: SourcePosition, host: object, positions: _Positions, hosts: set[str]) -> bool:
    """Return True if the object itself has a problem, or if its host was removed."""
    return _to_line(position) in positions or str(host).lower() in hosts


def _to_line(position: SourcePosition) -> tuple[str, int]:
    return position.file, position.line


def _count(part: Declarations) -> int:
    locations = sum(len(port.locations) for port in part.receive_ports)
    ports = len(part.receive_ports) + len(part.send_ports) + len(part.send_port_groups)
    ports += len(part.orchestrations) + len(part.lookups)
    return len(part.hosts) + len(part.properties) + locations + ports
