"""Execute the plan of a deployment, inside the caller's transaction and under the routing lock."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from postroom.application import ApplicationDefinition, SendPortDefinition
from postroom.messagebox.circuits import remove_open_circuit
from postroom.messagebox.configuration.applications import (
    ArtifactTable,
    delete_application,
    store_application,
    store_definition,
)
from postroom.messagebox.configuration.endpoints import (
    ReceivePort,
    delete_receive_location,
    delete_receive_port,
    delete_send_port,
    release_postponed,
    rename_services,
    store_receive_port,
)
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.configuration.services import (
    ServiceState,
    is_service_id,
    read_removed_services,
    remove_service,
)
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import delete_orchestration, format_name
from postroom.messagebox.subscriptions import deploy_property
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.declared_fields import CIRCUIT_BREAKER, ORDERED, TWO_WAY
from postroom.operations.deployment.deployed import Deployed
from postroom.operations.deployment.hosts import store_hosts
from postroom.operations.deployment.orchestrations import is_newest
from postroom.operations.deployment.plan import Action, ChangeKind, Plan, PlanStep
from postroom.operations.deployment.send_port_groups import remove_groups_and_members, store_group
from postroom.operations.orchestrations.enlistment import deploy_orchestration, unenlist_orchestration
from postroom.operations.ports.enlistment import (
    enlist_port,
    resubscribe_port,
    start_port,
    unenlist_port,
)
from postroom.ports.receive_locations import build_receive_location, store_receive_location
from postroom.ports.send_ports import SendPort, build_send_port, store_send_port
from postroom.system_properties import SYSTEM_PROPERTIES

#: Ids are derived from the names of the object and its application.
_ID_NAMESPACE = uuid.UUID("6f1d8a4e-30a5-4c1c-9d43-6f6a2b7a9d10")

#: The fields of a port that its subscriptions depend on.
_SUBSCRIPTION_FIELDS = {"host", "filter", "priority", ORDERED, TWO_WAY}
#: The fields that decide when postponed messages are sent.
_WINDOW_FIELDS = {"service window", "backup service window", "expire after", CIRCUIT_BREAKER}


class Deployment:
    """The steps of one plan, inside one transaction."""

    def __init__(
        self,
        connection: Connection,
        definition: ApplicationDefinition,
        deployed: Deployed,
        plan: Plan,
        home: Path,
        backlog: Backlog,
    ) -> None:
        self._connection = connection
        self._definition = definition
        self._deployed = deployed
        self._plan = plan
        self._home = home
        self._backlog = backlog

    def execute(self) -> None:
        """Execute all steps, in the order of their dependencies."""
        self._deploy_properties()
        store_hosts(self._connection, self._definition, self._deployed, self._plan)
        self._host_ids = {host.name.lower(): host.host_id for host in read_hosts(self._connection)}
        stored = self._definition.to_stored()
        self._application_id = store_application(
            self._connection, self._definition.name, properties=stored["properties"], hosts=stored["hosts"]
        )
        self._rename()
        self._remove()
        self._store_locations(self._store_receive_ports())
        self._store_send_ports()
        self._store_groups()
        self._store_orchestrations()
        self._store_definitions()
        for _ in self._plan.select(ChangeKind.APPLICATION, Action.REMOVE):
            delete_application(self._connection, self._application_id)

    def _deploy_properties(self) -> None:
        wanted = {**SYSTEM_PROPERTIES, **{prop.key: prop for prop in self._definition.properties}}
        for key, prop in wanted.items():
            if key not in self._deployed.properties or (prop.sensitive and key not in self._deployed.sensitive):
                deploy_property(self._connection, key, prop.value_type, sensitive=prop.sensitive)

    def _rename(self) -> None:
        deployed = self._deployed
        ports = {name: deployed.send_ports[name].port_id for name in deployed.port_renames.old_names}
        locations = {name: deployed.locations[name].location_id for name in deployed.location_renames.old_names}
        rename_services(self._connection, "send port", ports)
        rename_services(self._connection, "location", locations)

    def _remove(self) -> None:
        """Remove what is not declared any more. Instances stay, with the name of their port or location.

        Receive ports are removed later, because a location may move from one to another."""
        remove_groups_and_members(self._connection, self._definition, self._deployed)
        self._remove_orchestrations()
        for step in self._plan.select(ChangeKind.SEND_PORT, Action.REMOVE):
            port = self._deployed.send_ports[step.name]
            if port.state is not ServiceState.BOUND:
                unenlist_port(self._connection, port)
            delete_send_port(self._connection, port.port_id)
            self._remove_service(port.port_id)
        for step in self._plan.select(ChangeKind.LOCATION, Action.REMOVE):
            location_id = self._deployed.locations[step.name].location_id
            delete_receive_location(self._connection, location_id)
            self._remove_service(location_id)

    def _remove_service(self, service_id: uuid.UUID) -> None:
        """Remove a port or location from the MessageBox. Keep the decision about its instances if it has any."""
        backlog = self._backlog if service_id in self._deployed.backlog else Backlog.KEEP
        remove_service(self._connection, service_id, backlog=backlog)

    def _store_receive_ports(self) -> dict[str, uuid.UUID]:
        """Store new and changed receive ports. Return the ids of all, by name."""
        ids = {name: port.port_id for name, port in self._deployed.receive_ports.items()}
        declared = {port.name: port for port in self._definition.receive_ports}
        for step in self._plan.select(ChangeKind.RECEIVE_PORT, Action.CREATE, Action.CHANGE):
            port = declared[step.name]
            port_id = ids.setdefault(port.name, self._choose_id(step))
            stored = ReceivePort(port_id=port_id, name=port.name, definition=port.to_stored())
            store_receive_port(self._connection, stored, self._application_id)
        return ids

    def _store_locations(self, port_ids: Mapping[str, uuid.UUID]) -> None:
        changed = {step.name: step for step in self._plan.select(ChangeKind.LOCATION, Action.CREATE, Action.CHANGE)}
        for port in self._definition.receive_ports:
            for location in port.locations:
                if location.name not in changed:
                    continue
                declared = build_receive_location(
                    port,
                    location,
                    location_id=self._choose_id(changed[location.name]),
                    port_id=port_ids[port.name],
                    host_id=self._host_ids[location.host.lower()],
                    home=self._home,
                )
                store_receive_location(self._connection, declared)
        for step in self._plan.select(ChangeKind.RECEIVE_PORT, Action.REMOVE):
            delete_receive_port(self._connection, step.name)

    def _store_send_ports(self) -> None:
        changed = {step.name: step for step in self._plan.select(ChangeKind.SEND_PORT, Action.CREATE, Action.CHANGE)}
        for port in self._definition.send_ports:
            if port.name not in changed:
                continue
            declared = build_send_port(
                port,
                port_id=self._choose_id(changed[port.name]),
                host_id=self._host_ids[port.host.lower()],
                home=self._home,
            )
            stored = store_send_port(self._connection, declared, self._application_id)
            fields = {difference.field for difference in changed[port.name].differences}
            if changed[port.name].action is Action.CREATE:
                self._set_initial_state(stored, port)
            elif _SUBSCRIPTION_FIELDS & fields:
                resubscribe_port(self._connection, stored)
            if CIRCUIT_BREAKER in fields:
                remove_open_circuit(self._connection, stored.port_id)
            if _WINDOW_FIELDS & fields:
                release_postponed(self._connection, stored.port_id)

    def _set_initial_state(self, stored: SendPort, declared: SendPortDefinition) -> None:
        """Bring a new port, which is bound, to the declared state."""
        if declared.state != "bound":
            stored = enlist_port(self._connection, stored)
        if declared.state == "started":
            start_port(self._connection, stored)

    def _store_groups(self) -> None:
        """Store new groups, changed filters and new members. Members that left were removed before their ports."""
        declared = {group.name: group for group in self._definition.send_port_groups}
        for step in self._plan.select(ChangeKind.SEND_PORT_GROUP, Action.CREATE, Action.CHANGE):
            store_group(
                self._connection,
                declared[step.name],
                step,
                id=self._choose_id(step),
                application_id=self._application_id,
            )

    def _remove_orchestrations(self) -> None:
        removed = {step.name for step in self._plan.select(ChangeKind.ORCHESTRATION, Action.REMOVE)}
        for one in self._deployed.orchestrations.values():
            if format_name(one.name, one.version) in removed:
                unenlist_orchestration(self._connection, one)
                delete_orchestration(self._connection, one.service_id)

    def _store_orchestrations(self) -> None:
        changed = {
            step.name: step for step in self._plan.select(ChangeKind.ORCHESTRATION, Action.CREATE, Action.CHANGE)
        }
        for declared in self._definition.orchestrations:
            step = changed.get(format_name(declared.name, declared.version))
            if step is not None:
                deploy_orchestration(
                    self._connection,
                    declared,
                    known=self._deployed.orchestrations.get((declared.name, declared.version)),
                    new_id=self._choose_id(step),
                    application_id=self._application_id,
                    host_id=self._host_ids[declared.host.lower()],
                    is_newest=is_newest(self._definition, declared),
                )

    def _store_definitions(self) -> None:
        """Store what the plan does not compare, such as the declared state of a port that is deployed already."""
        before = {_get_key(table, each): each for table, each in _list_artifacts(self._deployed.definition or {})}
        for table, declared in _list_artifacts(self._definition.to_stored()):
            if before.get(_get_key(table, declared), declared) != declared:
                store_definition(self._connection, table, declared)

    def _choose_id(self, step: PlanStep) -> uuid.UUID:
        """Return the id of a new object. An existing one keeps its own. A port or location that this application
        removed and declares again, or under a new name, gets its old id, so that its instances can be resumed."""
        application = self._definition.name
        if step.action is Action.CREATE:
            names = (step.kind, application, self._deployed.get_removed_name(step.kind, step.name))
            for removed in reversed(read_removed_services(self._connection)):
                if (removed.kind, removed.application, removed.name) == names:
                    return removed.id
        derived = uuid.uuid5(_ID_NAMESPACE, f"{step.kind}/{application}/{step.name}")
        # A renamed object keeps the id that was derived from its old name.
        return uuid.uuid4() if is_service_id(self._connection, derived) else derived


def _list_artifacts(stored: Mapping[str, Any]) -> Iterator[tuple[ArtifactTable, dict[str, Any]]]:
    """Yield the definition of each artifact of a stored application, with the table that it is stored in."""
    for port in stored.get("receive_ports", ()):
        yield "receive_ports", {field: value for field, value in port.items() if field != "locations"}
        yield from (("receive_locations", location) for location in port["locations"])
    yield from (("send_ports", port) for port in stored.get("send_ports", ()))
    yield from (("send_port_groups", group) for group in stored.get("send_port_groups", ()))
    yield from (("orchestrations", one) for one in stored.get("orchestrations", ()))


def _get_key(table: ArtifactTable, stored: Mapping[str, Any]) -> tuple[ArtifactTable, str, int | None]:
    return table, stored["name"], stored.get("version")
