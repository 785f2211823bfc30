"""Converts the declarations of a user to the definition that is stored."""

from __future__ import annotations

from pathlib import Path

from postroom.adapters import SparkReader
from postroom.application.checks.orchestration_code import find_bound_ports
from postroom.application.checks.problems import as_values, find_declaration_problems
from postroom.application.checks.properties import list_known_properties, list_own_properties
from postroom.application.checks.transports import to_timedelta
from postroom.application.declarations import (
    Declarations,
    DeclaredHost,
    DeclaredLocation,
    DeclaredOrchestration,
    DeclaredSendPort,
    DeclaredSendPortGroup,
)
from postroom.application.definition import (
    DEFAULT_HOST,
    ApplicationDefinition,
    ApplicationProperty,
    HostDefinition,
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
from postroom.pipelines import PassThrough, Receive, ReceivePipeline, Rows
from postroom.pipelines.rows.source import RowSource
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT
from postroom.pipelines.shipping.imported_files import digest_code
from postroom.properties import Property


def define(application: Declarations) -> ApplicationDefinition:
    """Return the definition of an application. Raise DefinitionRefused with every problem if it has any."""
    problems = find_declaration_problems(application)
    if problems:
        raise DefinitionRefused(f"The application {application.name!r}", problems)
    known = list_known_properties(application)
    spelling = {DEFAULT_HOST.lower(): DEFAULT_HOST} | {host.name.lower(): host.name for host in application.hosts}
    receive_ports = tuple(
        ReceivePortDefinition(
            name=port.name,
            position=port.position,
            route_failures=port.route_failures,
            authentication=port.authentication,
            maps=PortMaps.pack(port.maps, port.position.folder),
            two_way=port.two_way,
            send_pipeline=(port.send_pipeline or PASS_THRU_TRANSMIT).pack(port.position.folder),
            response_maps=PortMaps.pack(port.response_maps, port.position.folder),
            locations=tuple(_location_definition(location, spelling) for location in port.locations),
        )
        for port in application.receive_ports
    )
    send_ports = tuple(_send_port_definition(port, spelling, known) for port in application.send_ports)
    declared = {host.name: host for host in application.hosts}
    orchestrations = tuple(_orchestration_definition(one, spelling) for one in application.orchestrations)
    used = {location.host for port in receive_ports for location in port.locations}
    used |= {port.host for port in send_ports} | {one.host for one in orchestrations}
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
    )


def _host_definition(host: DeclaredHost) -> HostDefinition:
    properties = None
    if host.properties is not None:
        values = {
            (prop.key, comparable_text(checked)): ApplicationProperty(property=prop, value=checked)
            for prop, given in host.properties.items()
            for checked in map(prop.check, as_values(given))
        }
        properties = tuple(values[key] for key in sorted(values))
    return HostDefinition(
        name=host.name,
        properties=properties,
        trusted=host.trusted,
        isolated=host.isolated,
        handlers=None if host.handlers is None else tuple(sorted(host.handlers, key=lambda each: each.key)),
        throttling=host.throttling,
        position=host.position,
    )


def _location_definition(location: DeclaredLocation, spelling: dict[str, str]) -> ReceiveLocationDefinition:
    return ReceiveLocationDefinition(
        name=location.name,
        adapter=location.adapter,
        pipeline=_pipeline(location),
        host=spelling[location.host.lower()],
        enabled=location.enabled,
        schedule=location.schedule,
        renamed_from=location.renamed_from,
        position=location.position,
    )


def _pipeline(location: DeclaredLocation) -> ReceivePipeline:
    """Return the pipeline with everything that it needs where it runs: files of the application's folder, and the
    columns of its reader."""
    if isinstance(location.adapter, SparkReader):
        rows = location.pipeline or Rows()
        assert isinstance(rows, Rows)
        return complete_rows(rows, location.adapter)
    pipeline = location.pipeline or PassThrough()
    return pipeline.pack(location.position.folder) if isinstance(pipeline, Receive) else pipeline


def complete_rows(rows: Rows, reader: SparkReader) -> Rows:
    """Return the pipeline with the columns of its reader, and with what is needed to correct bad rows."""
    columns = reader.known_columns or ()
    source = RowSource.create(reader.format, ((column.name, column.type) for column in columns), reader.options)
    return rows.with_columns(tuple(column.name for column in columns), reader.body_column, source)


def _send_port_definition(
    port: DeclaredSendPort, spelling: dict[str, str], known: list[Property]
) -> SendPortDefinition:
    return SendPortDefinition(
        name=port.name,
        adapter=port.adapter,
        filter=_filter(port.filter, known),
        retry=port.retry,
        priority=port.priority,
        host=spelling[port.host.lower()],
        state=port.state,
        route_failures=port.route_failures,
        description=port.description,
        maps=PortMaps.pack(port.maps, port.position.folder),
        pipeline=(port.pipeline or PASS_THRU_TRANSMIT).pack(port.position.folder),
        service_window=port.service_window,
        backup=port.backup,
        circuit_breaker=port.circuit_breaker,
        expire_after=None if port.expire_after is None else to_timedelta(port.expire_after),
        two_way=port.two_way,
        receive_pipeline=_receive_pipeline(port),
        response_maps=PortMaps.pack(port.response_maps, port.position.folder),
        ordered=port.ordered,
        stop_on_failure=port.stop_on_failure,
        renamed_from=port.renamed_from,
        position=port.position,
    )


def _receive_pipeline(port: DeclaredSendPort) -> ReceivePipeline | None:
    if not port.two_way:
        return None
    pipeline = port.receive_pipeline or PassThrough()
    return pipeline.pack(port.position.folder) if isinstance(pipeline, Receive) else pipeline


def _group_definition(group: DeclaredSendPortGroup, known: list[Property]) -> SendPortGroupDefinition:
    return SendPortGroupDefinition(
        name=group.name,
        # The order has no meaning, and a different order is not a change.
        members=tuple(sorted(member if isinstance(member, str) else member.name for member in group.members)),
        filter=_filter(group.filter, known),
        state=group.state,
        description=group.description,
        position=group.position,
    )


def _orchestration_definition(declared: DeclaredOrchestration, spelling: dict[str, str]) -> OrchestrationDefinition:
    orchestration, file = declared.orchestration, Path(declared.position.file).resolve()
    return OrchestrationDefinition(
        name=orchestration.name,
        version=orchestration.version,
        file=str(file),
        code=digest_code(file),
        filter=orchestration.activate,
        convoy=orchestration.convoy,
        ordered=declared.ordered,
        correlations=orchestration.correlations,
        ports=tuple(sorted(set(find_bound_ports(orchestration.function)))),
        host=spelling[declared.host.lower()],
        priority=declared.priority,
        state=declared.state,
        position=declared.position,
    )


def _filter(declared: Filter | str | None, known: list[Property]) -> Filter | None:
    return parse(declared, known) if isinstance(declared, str) else declared
