"""Converts the declarations of a user to the definition that is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from postroom.adapters import SparkReader
from postroom.application.checks.answering_code import can_answer
from postroom.application.checks.orchestration_code import find_logical_ports
from postroom.application.checks.problems import as_values, find_declaration_problems
from postroom.application.checks.properties import list_known_properties, list_own_properties
from postroom.application.checks.transports import to_timedelta
from postroom.application.declarations import Declarations, Declared, ReceivePort
from postroom.application.definition import (
    DEFAULT_HOST,
    ApplicationDefinition,
    ApplicationProperty,
    HostDefinition,
    LoadedCode,
    LookupDefinition,
    OrchestrationDefinition,
    ReceiveLocationDefinition,
    ReceivePortDefinition,
    SendPortDefinition,
    SendPortGroupDefinition,
)
from postroom.errors import DefinitionRefused
from postroom.filters.authorisation import comparable_text
from postroom.filters.expression import Filter
from postroom.filters.text import parse
from postroom.maps.port_maps import PortMaps
from postroom.orchestrations.components import Components
from postroom.orchestrations.definition import get_port_name
from postroom.pipelines import PassThrough, Receive, ReceivePipeline, Rows
from postroom.pipelines.rows.source import RowSource
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT
from postroom.pipelines.shipping.modules import digest_code
from postroom.pipelines.shipping.reached_code import find_reached_code
from postroom.properties import Property

_Definition = TypeVar(
    "_Definition",
    HostDefinition,
    ReceivePortDefinition,
    ReceiveLocationDefinition,
    SendPortDefinition,
    SendPortGroupDefinition,
    LookupDefinition,
)


def define(application: Declarations) -> ApplicationDefinition:
    """Return the definition of an application. Raise DefinitionRefused with every problem if it has any."""
    problems = find_declaration_problems(application)
    if problems:
        raise DefinitionRefused(f"The application {application.name!r}", problems)
    known = list_known_properties(application)
    spelling = {DEFAULT_HOST.lower(): DEFAULT_HOST} | {host.name.lower(): host.name for host in application.hosts}
    receive_ports = tuple(_receive_port_definition(port, spelling) for port in application.receive_ports)
    send_ports = tuple(_send_port_definition(port, spelling, known) for port in application.send_ports)
    declared = {host.name: host for host in application.hosts}
    orchestrations = tuple(_orchestration_definition(one, spelling) for one in application.orchestrations)
    lookups = tuple(_lookup_definition(lookup, spelling, known) for lookup in application.lookups)
    used = {location.host for port in receive_ports for location in port.locations}
    used |= {port.host for port in send_ports} | {one.host for one in orchestrations} | {one.host for one in lookups}
    return ApplicationDefinition(
        name=application.name,
        position=application.position,
        properties=list_own_properties(application),
        hosts=tuple(
            _host_definition(declared[name])
            if name in declared
            else HostDefinition(name=name, position=application.position)
            for name in sorted({*declared, *used})
        ),
        receive_ports=receive_ports,
        send_ports=send_ports,
        send_port_groups=tuple(_group_definition(group, known) for group in application.send_port_groups),
        orchestrations=orchestrations,
        lookups=lookups,
    )


def _define(kind: type[_Definition], declared: Declared, **completed: Any) -> _Definition:
    """Return a definition with the arguments of the user, except those that are ``completed``."""
    return kind(**{**declared.settings, **completed, "name": declared.name, "position": declared.position})


def _host_definition(host: Declared) -> HostDefinition:
    properties = None
    if host.properties is not None:
        values = {
            (prop.key, comparable_text(checked)): ApplicationProperty(property=prop, value=checked)
            for prop, given in host.properties.items()
            for checked in map(prop.check, as_values(given))
        }
        properties = tuple(values[key] for key in sorted(values))
    handlers = None if host.handlers is None else tuple(sorted(host.handlers, key=lambda each: each.key))
    return _define(HostDefinition, host, properties=properties, handlers=handlers)


def _receive_port_definition(port: ReceivePort, spelling: dict[str, str]) -> ReceivePortDefinition:
    folder = port.position.folder
    return _define(
        ReceivePortDefinition,
        port,
        maps=PortMaps.pack(port.maps, folder),
        send_pipeline=(port.send_pipeline or PASS_THRU_TRANSMIT).pack(folder),
        response_maps=PortMaps.pack(port.response_maps, folder),
        locations=tuple(_location_definition(location, spelling) for location in port.locations),
    )


def _location_definition(location: Declared, spelling: dict[str, str]) -> ReceiveLocationDefinition:
    host = spelling[location.host.lower()]
    return _define(ReceiveLocationDefinition, location, host=host, pipeline=_pipeline(location))


def _pipeline(location: Declared) -> ReceivePipeline:
    """Return the pipeline with everything that it needs where it runs: files of the application's folder, and the
    columns of its reader."""
    if isinstance(location.adapter, SparkReader):
        rows = location.pipeline or Rows()
        assert isinstance(rows, Rows)
        return complete_rows(rows, location.adapter)
    return _pack(location.pipeline or PassThrough(), location.position.folder)


def complete_rows(rows: Rows, reader: SparkReader) -> Rows:
    """Return the pipeline with the columns of its reader, and with what is needed to correct bad rows."""
    columns = reader.known_columns or ()
    source = RowSource.create(reader.format, ((column.name, column.type) for column in columns), reader.options)
    return rows.with_columns(tuple(column.name for column in columns), reader.body_column, source)


def _send_port_definition(port: Declared, spelling: dict[str, str], known: list[Property]) -> SendPortDefinition:
    folder = port.position.folder
    return _define(
        SendPortDefinition,
        port,
        host=spelling[port.host.lower()],
        filter=_filter(port.filter, known),
        maps=PortMaps.pack(port.maps, folder),
        pipeline=(port.pipeline or PASS_THRU_TRANSMIT).pack(folder),
        expire_after=None if port.expire_after is None else to_timedelta(port.expire_after),
        receive_pipeline=_pack(port.receive_pipeline or PassThrough(), folder) if port.two_way else None,
        response_maps=PortMaps.pack(port.response_maps, folder),
    )


def _pack(pipeline: ReceivePipeline, folder: Path) -> ReceivePipeline:
    return pipeline.pack(folder) if isinstance(pipeline, Receive) else pipeline


def _group_definition(group: Declared, known: list[Property]) -> SendPortGroupDefinition:
    # The order has no meaning, and a different order is not a change.
    members = tuple(sorted(member if isinstance(member, str) else member.name for member in group.members))
    return _define(SendPortGroupDefinition, group, members=members, filter=_filter(group.filter, known))


def _orchestration_definition(declared: Declared, spelling: dict[str, str]) -> OrchestrationDefinition:
    orchestration, file = declared.orchestration, Path(declared.position.file).resolve()
    components = Components.pack(orchestration.maps, orchestration.pipelines, declared.position.folder)
    reached = find_reached_code(orchestration.function, file.parent)
    return OrchestrationDefinition(
        name=orchestration.name,
        version=orchestration.version,
        file=str(file),
        code=digest_code(file),
        reached_code="" if reached is None else reached.digest,
        filter=orchestration.activate,
        convoy=orchestration.convoy,
        ordered=declared.ordered,
        correlations=orchestration.correlations,
        ports=tuple(sorted(set(find_logical_ports(orchestration.function)))),
        bindings=tuple(
            sorted((port, None if to is None else get_port_name(to)) for port, to in orchestration.bindings.items())
        ),
        answers=can_answer(orchestration.function),
        host=spelling[declared.host.lower()],
        priority=declared.priority,
        state=declared.state,
        renamed_from=declared.renamed_from,
        maps=components.maps,
        pipelines=components.pipelines,
        loaded=LoadedCode(orchestration),
        position=declared.position,
    )


def _lookup_definition(lookup: Declared, spelling: dict[str, str], known: list[Property]) -> LookupDefinition:
    return _define(LookupDefinition, lookup, host=spelling[lookup.host.lower()], filter=_filter(lookup.filter, known))


def _filter(declared: Filter | str | None, known: list[Property]) -> Filter | None:
    return parse(declared, known) if isinstance(declared, str) else declared
