"""An application compared with what is deployed: a pure function of both."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import normpath
from pathlib import Path

from postroom.adapters import AdapterDefinition, File
from postroom.application import (
    DEFAULT_HOST,
    ApplicationDefinition,
    SendPortDefinition,
    Throttling,
    conflicts,
)
from postroom.application.checks.conflicts import properties_of_host
from postroom.application.checks.shared_endpoints import shared_endpoint_problems
from postroom.errors import Problem
from postroom.filters.authorisation import NOTHING_TO_SHOW, ApplicationProperties
from postroom.filters.text import format_filter
from postroom.namespaces import dotted_name, split_key
from postroom.operations.deployment.compare_groups import find_group_problems, plan_groups
from postroom.operations.deployment.declared_fields import (
    AUTHENTICATION,
    ROUTE_FAILURES,
    deployed_location_fields,
    deployed_send_port_fields,
    location_fields,
    receive_port_fields,
    send_port_fields,
)
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.differences import find_differences
from postroom.operations.deployment.plan import Action, Difference, Kind, Plan, Step
from postroom.system_properties import SYSTEM_PROPERTIES
from postroom.values import ValueType

#: The system properties are deployed together, as one step.
ALL_SYSTEM_PROPERTIES = "system properties"


_SINK = "a Spark sink"


def find_problems(definition: ApplicationDefinition, deployed: Deployed, home: Path) -> tuple[Problem, ...]:
    """What of the deployment stands in the way of an application, as far as a part of it tells: what is not in it may
    be declared all the same."""
    return (
        *conflicts(definition, deployed.others),
        *shared_endpoint_problems(definition, deployed.others, home),
        *_type_problems(definition, deployed),
        *_authentication_problems(definition, deployed),
        *_kind_problems(definition, deployed),
        *find_group_problems(definition, deployed),
    )


def compare(definition: ApplicationDefinition, deployed: Deployed, home: Path) -> Plan:
    """What applying ``definition`` changes; relative paths in it are taken from ``home``."""
    return Plan(
        application=definition.name,
        steps=(
            _application(definition, deployed),
            *_hosts(definition, deployed),
            *_properties(definition, deployed),
            *_receive_ports(definition, deployed),
            *_locations(definition, deployed, home),
            *_send_ports(definition, deployed, home),
            *plan_groups(definition, deployed),
        ),
        problems=(*find_problems(definition, deployed, home), *find_removal_problems(definition, deployed)),
    )


# -- problems ------------------------------------------------------------------------------------------------------


def _type_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """A property stays deployed after the last application that knew it; its type cannot change."""
    told = {prop.key for other in deployed.others for prop in other.properties}
    for prop in definition.properties:
        there = deployed.properties.get(prop.key, prop.value_type)
        if there is prop.value_type:
            continue
        if prop.key not in told:
            yield definition.place.problem(
                f"{prop.dotted} has the type {_type(prop.value_type)} here, but is deployed as {_type(there)}; "
                "a property keeps its type. Give the new one another name."
            )
        filtered = [
            *(("send port", port.name, port.filter, port.place) for port in definition.send_ports),
            *(("send port group", group.name, group.filter, group.place) for group in definition.send_port_groups),
        ]
        for what, name, filter, place in filtered:
            groups = () if filter is None else filter.groups
            if any(predicate.property.key == prop.key for group in groups for predicate in group):
                yield place.problem(
                    f"{what} {name!r}: the filter compares {prop.dotted} with values of type "
                    f"{_type(prop.value_type)}, but it is deployed as {_type(there)}."
                )


def find_removed_locations(definition: ApplicationDefinition, deployed: Deployed) -> dict[str, str | None]:
    """The locations that are not declared any more, or with an adapter of another kind: that one."""
    kept = {location.name: location.adapter.kind for port in definition.receive_ports for location in port.locations}
    return {name: kept.get(name) for name, one in deployed.locations.items() if one.adapter_kind != kept.get(name)}


def find_removal_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """What a location has taken in, its own pipeline has to finish."""
    for name, new_kind in find_removed_locations(definition, deployed).items():
        count = deployed.unfinished_files.get(name, 0)
        if count:
            what = "removed" if new_kind is None else f"of the kind {new_kind!r}"
            thing = deployed.locations[name].adapter_type.intake_unit
            taken = f"one {thing} that it has taken is" if count == 1 else f"{count} {thing}s that it has taken are"
            yield definition.place.problem(
                f"location {name!r} is to be {what}, but {taken} not published yet. Let the pipeline finish first; "
                "'postroom pipeline show' shows what is quarantined."
            )


def _kind_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """A port is static or dynamic for good (SPT-14), and served by hosts or drained by Spark: its queue is for one."""
    for port in definition.send_ports:
        known = deployed.send_ports.get(port.name)
        if known is None:
            continue
        before, after = _lane(known.adapter_type), _lane(type(port.adapter))
        if before != after:
            deployed_as = before if before == _SINK else f"a {before} one"
            yield port.place.problem(
                f"send port {port.name!r} is deployed as {deployed_as} and cannot become {after}. Give the new one "
                "another name, or apply the application without it first."
            )


def _lane(adapter: type[AdapterDefinition]) -> str:
    return "dynamic" if adapter.is_dynamic else _SINK if adapter.is_sink else "static"


def _authentication_problems(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Of what a host that is not trusted receives nobody is believed to stand for: all of it would fail."""
    for port in definition.receive_ports:
        for location in port.locations if port.authentication != "none" else ():
            trusted, *_ = resolve_host_settings(definition, deployed, location.host)
            if not trusted:
                yield location.place.problem(
                    f"location {location.name!r}: the receive port {port.name!r} requires authentication, but the host "
                    f"{location.host!r} is not trusted. Declare it: app.host({location.host!r}, trusted=True)."
                )


def _type(value_type: ValueType) -> str:
    return value_type.python_type.__name__


# -- steps ---------------------------------------------------------------------------------------------------------


def _application(definition: ApplicationDefinition, deployed: Deployed) -> Step:
    if deployed.definition is None:
        action = Action.CREATE
    else:
        action = Action.KEEP if deployed.definition == definition.stored() else Action.CHANGE
    return Step(kind=Kind.APPLICATION, name=definition.name, action=action)


def _hosts(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Step]:
    for name in dict.fromkeys((DEFAULT_HOST, *(host.name for host in definition.hosts))):
        known = deployed.hosts.get(name.lower())
        trusted, properties, throttling = resolve_host_settings(definition, deployed, name)
        before = (False, NOTHING_TO_SHOW, Throttling())
        if known is not None:
            shows = deployed.application_properties.get(known.host_id, NOTHING_TO_SHOW)
            before = known.trusted, shows, known.throttling
        differences = tuple(
            Difference(field=field, before=old, after=new)
            for field, old, new in (
                ("trusted", _yes(before[0]), _yes(trusted)),
                ("properties", _shown(before[1]), _shown(properties)),
                ("throttling", str(before[2]), str(throttling)),
            )
            if old != new
        )
        action = Action.CREATE if known is None else Action.CHANGE if differences else Action.KEEP
        yield Step(kind=Kind.HOST, name=known.name if known else name, action=action, differences=differences)


def resolve_host_settings(
    definition: ApplicationDefinition, deployed: Deployed, name: str
) -> tuple[bool, ApplicationProperties, Throttling]:
    """Is the host trusted, what can it show, and how much may wait? What this application says, or else another one."""
    trusted: bool | None = None
    throttling: Throttling | None = None
    properties: ApplicationProperties | None = None
    for application in (definition, *deployed.others):
        for host in application.hosts:
            if host.name.lower() == name.lower():
                trusted = host.trusted if trusted is None else trusted
                throttling = host.throttling if throttling is None else throttling
                if properties is None and host.properties is not None:
                    properties = properties_of_host(host)
    return trusted is True, properties or NOTHING_TO_SHOW, throttling or Throttling()


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _shown(properties: ApplicationProperties) -> str:
    return ", ".join(f"{dotted_name(*split_key(key))} = {text!r}" for key, text in sorted(properties)) or "none"


def _properties(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Step]:
    missing = SYSTEM_PROPERTIES.keys() - deployed.properties.keys()
    if missing:
        yield Step(
            kind=Kind.PROPERTY, name=ALL_SYSTEM_PROPERTIES, action=Action.CREATE, note=f"{len(missing)} properties"
        )
    for prop in definition.properties:
        if prop.sensitive and prop.key in deployed.properties and prop.key not in deployed.sensitive:
            hides = Difference(field="sensitive", before="no", after="yes")
            yield Step(kind=Kind.PROPERTY, name=prop.dotted, action=Action.CHANGE, differences=(hides,))
        elif prop.key in deployed.properties:
            yield Step(kind=Kind.PROPERTY, name=prop.dotted, action=Action.KEEP)
        else:
            yield Step(kind=Kind.PROPERTY, name=prop.dotted, action=Action.CREATE, note=_type(prop.value_type))


def _receive_ports(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Step]:
    declared = {port.name for port in definition.receive_ports}
    for name in sorted(deployed.receive_ports.keys() - declared):
        yield Step(kind=Kind.RECEIVE_PORT, name=name, action=Action.REMOVE)
    for port in definition.receive_ports:
        known = deployed.receive_ports.get(port.name)
        if known is None:
            said = (
                _fails(port.route_failures),
                "" if port.authentication == "none" else _requires(port.authentication),
            )
            note = ", ".join(filter(None, said))
            yield Step(kind=Kind.RECEIVE_PORT, name=port.name, action=Action.CREATE, note=note)
            continue
        stored = {ROUTE_FAILURES: known.route_failures, AUTHENTICATION: known.authentication}
        differences = find_differences(receive_port_fields(port), stored)
        action = Action.CHANGE if differences else Action.KEEP
        yield Step(kind=Kind.RECEIVE_PORT, name=port.name, action=action, differences=differences)


def _locations(definition: ApplicationDefinition, deployed: Deployed, home: Path) -> Iterator[Step]:
    declared = {location.name: (port, location) for port in definition.receive_ports for location in port.locations}
    for name in sorted(deployed.locations.keys() - declared.keys()):
        yield Step(kind=Kind.LOCATION, name=name, action=Action.REMOVE)
    for name, (port, location) in declared.items():
        known = deployed.locations.get(name)
        if known is None:
            state = "enabled" if location.enabled else "disabled"
            yield Step(kind=Kind.LOCATION, name=name, action=Action.CREATE, note=state)
            continue
        differences = find_differences(
            location_fields(port, location, home), deployed_location_fields(known, deployed.host_name(known.host_id))
        )
        kept = "enabled" if known.enabled else "disabled"
        yield Step(
            kind=Kind.LOCATION,
            name=name,
            action=Action.CHANGE if differences else Action.KEEP,
            differences=differences,
            note=f"stays {kept}" if known.enabled != location.enabled else "",
        )


def _send_ports(definition: ApplicationDefinition, deployed: Deployed, home: Path) -> Iterator[Step]:
    declared = {port.name for port in definition.send_ports}
    for name in sorted(deployed.send_ports.keys() - declared):
        state = deployed.send_ports[name].state.name.lower()
        note = "" if state == "bound" else f"is {state}: unenlisted first; its instances stay"
        yield Step(kind=Kind.SEND_PORT, name=name, action=Action.REMOVE, note=note)
    for port in definition.send_ports:
        known = deployed.send_ports.get(port.name)
        circle = _circle(port, definition, deployed, home)
        if known is None:
            said = "without a filter" if port.filter is None else f"filter: {format_filter(port.filter)}"
            dynamic = "dynamic, " if port.adapter.is_dynamic else ""
            new = (f"{port.state}, {dynamic}{said}", _fails(port.route_failures), circle, port.adapter.guarantee)
            note = "; ".join(filter(None, new))
            yield Step(kind=Kind.SEND_PORT, name=port.name, action=Action.CREATE, note=note)
            continue
        differences = find_differences(
            send_port_fields(port, home), deployed_send_port_fields(known, deployed.host_name(known.host_id))
        )
        kept = known.state.name.lower()
        notes = [f"stays {kept}"] if kept != port.state else []
        if any(difference.field == "host" for difference in differences):
            old = deployed.host_name(known.host_id)
            notes.append(f"what is queued for it stays with {old}, which has to run until it is sent")
        yield Step(
            kind=Kind.SEND_PORT,
            name=port.name,
            action=Action.CHANGE if differences else Action.KEEP,
            differences=differences,
            note="; ".join([*notes, *filter(None, (circle, port.adapter.guarantee))]),
        )


def _fails(route_failures: bool) -> str:
    return "routes failures" if route_failures else ""


def _requires(authentication: str) -> str:
    return f"requires authentication ({authentication})"


def _circle(port: SendPortDefinition, definition: ApplicationDefinition, deployed: Deployed, home: Path) -> str:
    """That a port writes where a location looks; it may be meant, but it may also never end."""
    if not isinstance(port.adapter, File):
        return ""
    folder = normpath(port.adapter.folder(home))
    watching = [
        location.name
        for application in (definition, *deployed.others)
        for receive_port in application.receive_ports
        for location in receive_port.locations
        if isinstance(location.adapter, File) and normpath(location.adapter.folder(home)) == folder
    ]
    return f"writes into the folder of location {', '.join(watching)}: what it sends comes in again" if watching else ""
