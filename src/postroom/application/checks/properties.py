"""The properties that an application knows, and problems with how it uses them.

A property is known if it is a system property, if a pipeline of the application promotes it, if a host shows it, or if
the application declares it. A filter over any other property is rejected, because it is most often a typing error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from postroom.adapters import SinkDefinition
from postroom.application.declarations import Declarations
from postroom.application.source_position import SourcePosition
from postroom.errors import Problem
from postroom.filters.expression import Filter
from postroom.maps import Map
from postroom.pipelines import ReceivePipeline, Send
from postroom.properties import DistinguishedField, Property
from postroom.system_properties import SYSTEM_PROPERTIES


@dataclass(frozen=True, kw_only=True)
class Use:
    """One use of a property. Only some uses make it known."""

    property: Property
    position: SourcePosition
    makes_known: bool


def find_uses(application: Declarations) -> Iterator[Use]:
    """Yield every use of a property in the application: declared, set for a host, promoted, demoted,
    compared."""
    for declared in application.properties:
        if isinstance(declared.property, Property):
            yield Use(property=declared.property, position=declared.position, makes_known=True)
    for host in application.hosts:
        # Message predicates refer to the application properties of hosts, so these are known with their types.
        for prop in host.properties if isinstance(host.properties, Mapping) else ():
            if isinstance(prop, Property) and not isinstance(prop, DistinguishedField):
                yield Use(property=prop, position=host.position, makes_known=True)
    for receive_port in application.receive_ports:
        yield from _find_map_promotions(receive_port.maps, receive_port.position)
        for location in receive_port.locations:
            if isinstance(location.pipeline, ReceivePipeline):
                yield from _find_promotions(location.pipeline, location.position)
    for port in application.send_ports:
        if isinstance(port.receive_pipeline, ReceivePipeline):
            yield from _find_promotions(port.receive_pipeline, port.position)
        yield from _find_map_promotions(port.response_maps, port.position)
        if isinstance(port.adapter, SinkDefinition):
            for prop in port.adapter.properties:
                if not isinstance(prop, DistinguishedField):
                    yield Use(property=prop, position=port.position, makes_known=False)
        if isinstance(port.pipeline, Send):
            yield from _find_demotions(port.pipeline, port.position)
    for filtered in (*application.send_ports, *application.send_port_groups, *application.lookups):
        if isinstance(filtered.filter, Filter):
            for prop in list_compared_properties(filtered.filter):
                yield Use(property=prop, position=filtered.position, makes_known=False)
    for lookup in application.lookups:
        if isinstance(lookup.key, Property) and not isinstance(lookup.key, DistinguishedField):
            yield Use(property=lookup.key, position=lookup.position, makes_known=False)
    for one in application.orchestrations:
        orchestration = one.orchestration
        activate = orchestration.activate
        activating = list_compared_properties(activate) if isinstance(activate, Filter) else ()
        correlated = (prop for properties in orchestration.correlations for prop in properties)
        for prop in (*activating, *orchestration.convoy, *correlated):
            if isinstance(prop, Property):
                yield Use(property=prop, position=one.position, makes_known=False)
        yield from _find_map_promotions(orchestration.maps, one.position)
        for pipeline in orchestration.pipelines if isinstance(orchestration.pipelines, list | tuple) else ():
            if isinstance(pipeline, ReceivePipeline):
                yield from _find_promotions(pipeline, one.position)
            elif isinstance(pipeline, Send):
                yield from _find_demotions(pipeline, one.position)


def _find_map_promotions(maps: object, position: SourcePosition) -> Iterator[Use]:
    # An argument that is not a list of maps is reported by another check.
    for port_map in maps if isinstance(maps, list | tuple) else ():
        for prop in port_map.may_promote if isinstance(port_map, Map) else ():
            if not isinstance(prop, DistinguishedField):
                yield Use(property=prop, position=position, makes_known=True)


def _find_promotions(pipeline: ReceivePipeline, position: SourcePosition) -> Iterator[Use]:
    for prop in pipeline.promotes:
        if not isinstance(prop, DistinguishedField):  # it is written, not promoted: filters cannot compare it
            yield Use(property=prop, position=position, makes_known=True)


def _find_demotions(pipeline: Send, position: SourcePosition) -> Iterator[Use]:
    for prop in pipeline.demotes:
        if not isinstance(prop, DistinguishedField):
            yield Use(property=prop, position=position, makes_known=False)


def list_compared_properties(filter: Filter) -> Iterator[Property]:
    """Yield the properties in a filter, each once."""
    for key, value_type in dict.fromkeys((p.property.key, p.property.value_type) for g in filter.groups for p in g):
        yield Property.from_key(key, value_type)


def list_known_properties(application: Declarations) -> list[Property]:
    """Return the properties that text filters may use. It includes properties that only a Python filter compares:
    another check reports these."""
    return [*SYSTEM_PROPERTIES.values(), *(use.property for use in find_uses(application))]


def list_own_properties(application: Declarations) -> tuple[Property, ...]:
    """Return the properties that the application uses, each once, without system properties."""
    mentioned: dict[str, Property] = {}
    for use in find_uses(application):
        # Filters and pipelines do not know which properties are sensitive. One declaration is enough.
        if use.property.sensitive or use.property.key not in mentioned:
            mentioned[use.property.key] = use.property
    return tuple(mentioned[key] for key in sorted(mentioned) if key not in SYSTEM_PROPERTIES)


def property_problems(application: Declarations) -> Iterator[Problem]:
    """Yield properties that are used but not known, and properties with two types."""
    mentions = list(find_uses(application))
    known = {use.property.key for use in mentions if use.makes_known} | SYSTEM_PROPERTIES.keys()
    dotted = sorted(use.property.dotted_name for use in mentions if use.makes_known)
    for use in mentions:
        if use.property.key not in known:
            yield use.position.problem(_describe_unknown(use.property, dotted))
    yield from _type_problems(mentions)


def _type_problems(mentions: list[Use]) -> Iterator[Problem]:
    first = {
        key: Use(property=prop, position=SourcePosition(), makes_known=True) for key, prop in SYSTEM_PROPERTIES.items()
    }
    for use in mentions:
        other = first.setdefault(use.property.key, use)
        if other.property.value_type is not use.property.value_type:
            there = (
                f" in {other.position.file}:{other.position.line}" if other.position.line else ", as a system property"
            )
            yield use.position.problem(
                f"{use.property.dotted_name} has the type {_type_name(use.property)} here, "
                f"but {_type_name(other.property)}{there}."
            )


def _type_name(prop: Property) -> str:
    return prop.value_type.python_type.__name__


def _describe_unknown(prop: Property, dotted: list[str]) -> str:
    near = difflib.get_close_matches(prop.dotted_name, dotted, n=1, cutoff=0.8)
    suggestion = f"Did you mean {near[0]}? " if near else ""
    return (
        f"{prop.dotted_name} is not known: no pipeline of this application promotes it. {suggestion}If programs or "
        f"other applications promote it, declare it with app.property(...)."
    )
