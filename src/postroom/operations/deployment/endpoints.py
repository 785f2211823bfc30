"""Receive ports, receive locations and send ports, as artifacts of an application.

State, and whether a location is enabled, belong to the operator and are not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from os.path import normpath
from typing import Any

from postroom.adapters import File, SendDefinition, SinkDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.application import (
    ApplicationDefinition,
    ReceiveLocationDefinition,
    ReceivePortDefinition,
    SendPortDefinition,
)
from postroom.application.backup_transport import TransportSettings
from postroom.application.retry import Retry
from postroom.errors import Problem
from postroom.filters.text import format_filter
from postroom.messagebox.circuits import remove_open_circuit
from postroom.messagebox.configuration.applications import StoredApplication
from postroom.messagebox.configuration.endpoints import (
    StoredReceivePort,
    delete_receive_location,
    delete_receive_port,
    delete_send_port,
    read_receive_ports,
    read_send_port_names,
    release_postponed,
    store_receive_port,
)
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.artifacts import ArtifactKind, Comparison, Deployed, Deployment
from postroom.operations.deployment.backlog import describe_restored
from postroom.operations.deployment.differences import find_differences
from postroom.operations.deployment.plan import ChangeKind, Difference, PlanStep
from postroom.operations.ports.enlistment import enlist_port, resubscribe_port, start_port, unenlist_port
from postroom.ports.receive_locations import (
    ReceiveLocation,
    build_receive_location,
    read_receive_locations,
    store_receive_location,
)
from postroom.ports.send_ports import SendPort, Transport, build_send_port, read_send_ports, store_send_port

CIRCUIT_BREAKER = "circuit breaker"
ORDERED = "ordered"
TWO_WAY = "two-way"

#: The names of settings that plans do not show as they are written in Python.
_NAMES = {"two_way": TWO_WAY}

#: The fields of a port that its subscriptions depend on.
_SUBSCRIPTION_FIELDS = {"host", "filter", "priority", ORDERED, TWO_WAY}
#: The fields that decide when postponed messages are sent.
_WINDOW_FIELDS = {"service window", "backup service window", "expire after", CIRCUIT_BREAKER}

_SINK = "a Spark sink"


# -- receive ports -------------------------------------------------------------------------------------------------


class _ReceivePorts(ArtifactKind[ReceivePortDefinition, StoredReceivePort]):
    kind = ChangeKind.RECEIVE_PORT
    table = "receive_ports"
    id_field = "port_id"
    moves_with_name = "its locations"
    # A location may move from one to another.
    is_removed_last = True

    def read(self, connection: Connection, application: StoredApplication) -> Iterable[StoredReceivePort]:
        return read_receive_ports(connection, application.name).values()

    def find_differences(
        self, compared: Comparison, declared: ReceivePortDefinition, known: StoredReceivePort
    ) -> tuple[Difference, ...]:
        stored = declared.to_stored(), known.definition
        return find_differences(*(_list_settings(each, besides={"name", "renamed_from"}) for each in stored))

    def get_state(self, artifact: Any) -> None:
        return None

    def describe_new(self, compared: Comparison, declared: ReceivePortDefinition) -> Iterator[str]:
        notes = (
            "routes failures" if declared.route_failures else "",
            "" if declared.authentication == "none" else f"requires authentication ({declared.authentication})",
        )
        yield ", ".join(filter(None, notes))

    def store(
        self, deployment: Deployment, step: PlanStep, declared: ReceivePortDefinition, known: StoredReceivePort | None
    ) -> None:
        port_id = deployment.get_id(self, declared.name)
        stored = StoredReceivePort(port_id=port_id, name=declared.name, definition=declared.to_stored())
        store_receive_port(deployment.connection, stored, deployment.application_id)

    def remove(self, deployment: Deployment, known: StoredReceivePort) -> None:
        delete_receive_port(deployment.connection, known.name)


RECEIVE_PORTS = _ReceivePorts()


# -- receive locations ---------------------------------------------------------------------------------------------


class _ReceiveLocations(ArtifactKind[ReceiveLocationDefinition, ReceiveLocation]):
    kind = ChangeKind.LOCATION
    table = "receive_locations"
    id_field = "location_id"
    keeps_instances = True
    moves_with_name = "its instances"

    def list_declared(self, definition: ApplicationDefinition) -> Iterable[ReceiveLocationDefinition]:
        return [location for port in definition.receive_ports for location in port.locations]

    def read(self, connection: Connection, application: StoredApplication) -> Iterable[ReceiveLocation]:
        own = read_receive_ports(connection, application.name)
        return [location for location in read_receive_locations(connection) if location.port_name in own]

    def find_differences(
        self, compared: Comparison, declared: ReceiveLocationDefinition, known: ReceiveLocation
    ) -> tuple[Difference, ...]:
        built = build_receive_location(
            _get_receive_port(compared.definition, declared),
            declared,
            location_id=known.location_id,
            port_id=known.port_id,
            host_id=known.host_id,
            home=compared.home,
        )
        # A schedule that is not declared belongs to the operator.
        built = replace(built, schedule=built.schedule or known.schedule)
        deployed_host = compared.deployed.host_name(known.host_id)
        return find_differences(
            _list_location_fields(built, declared.host), _list_location_fields(known, deployed_host)
        )

    def get_state(self, artifact: ReceiveLocationDefinition | ReceiveLocation) -> str:
        return "enabled" if artifact.enabled else "disabled"

    def describe_new(self, compared: Comparison, declared: ReceiveLocationDefinition) -> Iterator[str]:
        yield self.get_state(declared)
        yield describe_restored_service(self.kind, declared.name, compared.deployed)

    def find_problems_of_whole(self, compared: Comparison) -> Iterator[Problem]:
        return find_unfinished_locations(compared.definition, compared.deployed)

    def store(
        self, deployment: Deployment, step: PlanStep, declared: ReceiveLocationDefinition, known: ReceiveLocation | None
    ) -> None:
        port = _get_receive_port(deployment.compared.definition, declared)
        location = build_receive_location(
            port,
            declared,
            location_id=deployment.get_id(self, declared.name),
            port_id=deployment.get_id(RECEIVE_PORTS, port.name),
            host_id=deployment.get_host_id(declared.host),
            home=deployment.compared.home,
        )
        store_receive_location(deployment.connection, location)

    def remove(self, deployment: Deployment, known: ReceiveLocation) -> None:
        delete_receive_location(deployment.connection, known.location_id)
        deployment.remove_service(known.location_id)


LOCATIONS = _ReceiveLocations()


def _get_receive_port(definition: ApplicationDefinition, location: ReceiveLocationDefinition) -> ReceivePortDefinition:
    return next(port for port in definition.receive_ports if any(each is location for each in port.locations))


def _list_location_fields(location: ReceiveLocation, host: str) -> dict[str, Any]:
    """Return the fields of a receive location, declared or deployed."""
    return {
        "receive port": location.port_name,
        "host": host,
        **_list_settings(location.definition, besides={"name", "host", "enabled", "schedule", "renamed_from"}),
        "uri": location.uri,
        "schedule": location.schedule,
    }


def find_removed_locations(definition: ApplicationDefinition, deployed: Deployed) -> dict[str, str | None]:
    """Return the locations that are no longer declared, or only with an adapter of another kind.

    The value is the new kind of adapter, or None."""
    declared = {location.name: location.adapter.kind for location in LOCATIONS.list_declared(definition)}
    return {
        name: declared.get(name)
        for name, location in deployed.get(LOCATIONS).items()
        if location.adapter_kind != declared.get(name)
    }


def find_unfinished_locations(definition: ApplicationDefinition, deployed: Deployed) -> Iterator[Problem]:
    """Yield the removed locations with files that only their own pipeline can publish."""
    for name, new_kind in find_removed_locations(definition, deployed).items():
        location = deployed.get(LOCATIONS)[name]
        count = deployed.unfinished_files.get(location.location_id, 0)
        if count:
            change = "removed" if new_kind is None else f"changed to the kind {new_kind!r}"
            unit = location.adapter_type.intake_unit
            received = f"1 received {unit} is" if count == 1 else f"{count} received {unit}s are"
            yield definition.position.problem(
                f"location {name!r} cannot be {change}: {received} not published yet. Let the pipeline finish first; "
                "'postroom pipeline show' shows what is quarantined."
            )


# -- send ports ----------------------------------------------------------------------------------------------------


class _SendPorts(ArtifactKind[SendPortDefinition, SendPort]):
    kind = ChangeKind.SEND_PORT
    table = "send_ports"
    id_field = "port_id"
    keeps_instances = True
    moves_with_name = "its instances"

    def read(self, connection: Connection, application: StoredApplication) -> Iterable[SendPort]:
        own = read_send_port_names(connection, application.name)
        return [port for port in read_send_ports(connection) if port.name in own]

    def find_differences(
        self, compared: Comparison, declared: SendPortDefinition, known: SendPort
    ) -> tuple[Difference, ...]:
        built = build_send_port(declared, port_id=known.port_id, host_id=known.host_id, home=compared.home)
        host = compared.deployed.host_name(known.host_id)
        return find_differences(_list_port_fields(built, declared.host), _list_port_fields(known, host))

    def describe_new(self, compared: Comparison, declared: SendPortDefinition) -> Iterator[str]:
        filter_text = "without a filter" if declared.filter is None else f"filter: {format_filter(declared.filter)}"
        yield f"{declared.state}, {'dynamic, ' if isinstance(declared.adapter, Dynamic) else ''}{filter_text}"
        yield from declared.list_notes()
        yield describe_restored_service(self.kind, declared.name, compared.deployed)
        yield _describe_loop(declared, compared)
        yield declared.adapter.guarantee

    def describe_removal(self, compared: Comparison, known: SendPort) -> Iterator[str]:
        if known.state is not ServiceState.BOUND:
            yield f"is {known.state.value} and will be unenlisted"

    def describe_change(
        self,
        compared: Comparison,
        declared: SendPortDefinition,
        known: SendPort,
        differences: tuple[Difference, ...],
    ) -> Iterator[str]:
        changed = {difference.field for difference in differences}
        if "host" in changed:
            old = compared.deployed.host_name(known.host_id)
            yield f"queued messages stay with host {old}, which has to run until they are sent"
        if ORDERED in changed:
            yield "queued messages keep the way in which they were queued"
        yield _describe_loop(declared, compared)
        yield declared.adapter.guarantee

    def find_problems(self, compared: Comparison) -> Iterator[Problem]:
        """Yield the ports that change between static, dynamic and sink, which is not possible (SPT-14)."""
        for port in compared.definition.send_ports:
            known = compared.deployed.get(self).get(port.name)
            if known is None:
                continue
            before, after = _get_port_kind(known.adapter_type), _get_port_kind(type(port.adapter))
            if before != after:
                deployed_as = before if before == _SINK else f"a {before} one"
                yield port.position.problem(
                    f"send port {port.name!r} is deployed as {deployed_as} and cannot become {after}. Use another "
                    "name, or apply the application without the port first."
                )

    def store(
        self, deployment: Deployment, step: PlanStep, declared: SendPortDefinition, known: SendPort | None
    ) -> None:
        connection, fields = deployment.connection, {difference.field for difference in step.differences}
        port = build_send_port(
            declared,
            port_id=deployment.get_id(self, declared.name),
            host_id=deployment.get_host_id(declared.host),
            home=deployment.compared.home,
        )
        port = store_send_port(connection, port, deployment.application_id)
        if known is None:
            # A new port is bound.
            if declared.state != "bound":
                port = enlist_port(connection, port)
            if declared.state == "started":
                start_port(connection, port)
        elif _SUBSCRIPTION_FIELDS & fields:
            resubscribe_port(connection, port)
        if CIRCUIT_BREAKER in fields:
            remove_open_circuit(connection, port.port_id)
        if _WINDOW_FIELDS & fields:
            release_postponed(connection, port.port_id)

    def remove(self, deployment: Deployment, known: SendPort) -> None:
        if known.state is not ServiceState.BOUND:
            unenlist_port(deployment.connection, known)
        delete_send_port(deployment.connection, known.port_id)
        deployment.remove_service(known.port_id)


SEND_PORTS = _SendPorts()


def _get_port_kind(adapter: type[SendDefinition]) -> str:
    return "dynamic" if issubclass(adapter, Dynamic) else _SINK if issubclass(adapter, SinkDefinition) else "static"


def describe_restored_service(kind: ChangeKind, name: str, deployed: Deployed) -> str:
    """Return a note about the instances that a new artifact gets back, or takes over from the name that it had."""
    service_id = deployed.find_removed(kind, name)
    if service_id is None:
        return ""
    old_name = deployed.get_removed_name(kind, name)
    return describe_restored(deployed.backlog.get(service_id), None if old_name == name else old_name)


def _describe_loop(port: SendPortDefinition, compared: Comparison) -> str:
    """Return a note if the port writes into a watched folder. That is allowed, but may be an endless loop."""
    if not isinstance(port.adapter, File):
        return ""
    folder = normpath(port.adapter.folder(compared.home))
    watching = [
        location.name
        for application in (compared.definition, *compared.deployed.others)
        for location in LOCATIONS.list_declared(application)
        if isinstance(location.adapter, File) and normpath(location.adapter.folder(compared.home)) == folder
    ]
    return f"writes into the folder of location {', '.join(watching)}, which receives its files" if watching else ""


def _list_port_fields(port: SendPort, host: str) -> dict[str, Any]:
    """Return the fields of a send port, declared or deployed, under the names that plans show."""
    stored = {**port.definition, "receive_pipeline": port.definition["receive_pipeline"] or {}}
    settings = {"name", "host", "state", "renamed_from", "backup", *type(port.settings).model_fields}
    return {
        "host": host,
        "uri": port.uri,
        **_list_settings(stored, besides=settings),
        **_list_transport_settings(port.settings),
        **(_NO_BACKUP if port.backup is None else _list_backup_fields(port.backup)),
    }


def _list_backup_fields(backup: Transport) -> dict[str, Any]:
    settings = _list_transport_settings(backup.settings, "backup ")
    return {"backup adapter": backup.adapter_json, "backup uri": backup.uri, **settings}


def _list_transport_settings(settings: TransportSettings, prefix: str = "") -> dict[str, Any]:
    """Return the plain settings under the names that plans show."""
    found: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Retry):
            found[f"{prefix}retry count"] = value.count
            found[f"{prefix}retry interval"] = timedelta(seconds=value.interval)
        else:
            found[prefix + _to_field(name)] = value
    return found


def _list_settings(stored: Mapping[str, Any], *, besides: Collection[str]) -> dict[str, Any]:
    """Return the settings of a stored definition under the names that plans show, besides some of them."""
    return {_to_field(name): value for name, value in stored.items() if name not in besides}


def _to_field(name: str) -> str:
    return _NAMES.get(name) or name.replace("_", " ")


_NO_BACKUP: Mapping[str, Any] = {
    "backup adapter": {},
    "backup uri": None,
    **dict.fromkeys(_list_transport_settings(TransportSettings(), "backup ")),
}
