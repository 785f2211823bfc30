"""Conflicts between an application and the deployed applications.

Names of ports, groups, locations and lookups are unique in the whole deployment (SPT-14, ORS-07); a property has one
type in all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from postroom.application.definition import ApplicationDefinition, HostDefinition
from postroom.application.handler import describe_handlers
from postroom.application.source_position import SourcePosition
from postroom.errors import Problem


def conflicts(new: ApplicationDefinition, deployed: Iterable[ApplicationDefinition]) -> list[Problem]:
    """Return every conflict. A deployed application of the same name is replaced, and causes none."""
    found = []
    for other in deployed:
        if other.name != new.name:
            taken = {(kind.shared_with, name): kind.what for kind, name, _ in _names(other)}
            found += [
                position.problem(
                    f"the application {other.name!r} has a {taken[kind.shared_with, name]} named {name!r} already."
                )
                for kind, name, position in _names(new)
                if (kind.shared_with, name) in taken
            ]
            found += _type_conflicts(new, other)
            found += _host_conflicts(new, other)
    return found


class _Kind(NamedTuple):
    what: str
    shared_with: str
    """Kinds that share their names: a send port and a send port group cannot have the same name."""


_RECEIVE_PORT, _LOCATION = _Kind("receive port", "receive port"), _Kind("receive location", "receive location")
_SEND_PORT, _GROUP = _Kind("send port", "send port"), _Kind("send port group", "send port")
_LOOKUP = _Kind("lookup", "lookup")


def _names(application: ApplicationDefinition) -> Iterator[tuple[_Kind, str, SourcePosition]]:
    for receive_port in application.receive_ports:
        yield _RECEIVE_PORT, receive_port.name, receive_port.position
        for location in receive_port.locations:
            yield _LOCATION, location.name, location.position
    for send_port in application.send_ports:
        yield _SEND_PORT, send_port.name, send_port.position
    for group in application.send_port_groups:
        yield _GROUP, group.name, group.position
    for lookup in application.lookups:
        yield _LOOKUP, lookup.name, lookup.position


def _host_conflicts(new: ApplicationDefinition, other: ApplicationDefinition) -> Iterator[Problem]:
    """Yield hosts that two applications declare with different settings."""
    theirs = {host.name.lower(): host for host in other.hosts}
    for host in new.hosts:
        there = theirs.get(host.name.lower(), host)
        for setting in HostDefinition.list_settings():
            ours, set_there = getattr(host, setting), getattr(there, setting)
            if setting == "properties":
                is_same = host.application_properties == there.application_properties
            else:
                is_same = ours == set_there
            if not is_same and ours is not None and set_there is not None:
                text = _describe_setting(setting, set_there)
                yield host.position.problem(f"host {host.name!r}: {text} in the application {other.name!r}.")


def _describe_setting(setting: str, value: object) -> str:
    match setting, value:
        case _, bool():
            return f"it is {setting}" if value else f"it is not {setting}"
        case "handlers", tuple():
            return f"its handlers are {describe_handlers(value)}"
        case "threads", _:
            return f"it has {value} threads"
        case "throttling", _:
            return f"it throttles {value}"
        case _:
            return f"it has other {setting}"


def _type_conflicts(new: ApplicationDefinition, other: ApplicationDefinition) -> Iterator[Problem]:
    theirs = {prop.key: prop.value_type for prop in other.properties}
    for prop in new.properties:
        there = theirs.get(prop.key, prop.value_type)
        if there is not prop.value_type:
            text = (
                f"{prop.dotted_name} has the type {prop.value_type.python_type.__name__} here, "
                f"but {there.python_type.__name__} in the application {other.name!r}."
            )
            yield new.position.problem(text)
