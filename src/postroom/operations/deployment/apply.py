"""Plan and apply applications in one transaction.

    definition = load(Path("examples/orders/app.py"))
    plan(connection, definition, home=Path("orders-home")).changes
    apply(connection, definition, home=Path("orders-home"))

Decisions of operators are kept: an existing port keeps its state, and a location stays enabled or disabled.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from postroom.application import (
    DEFAULT_HOST,
    ApplicationDefinition,
    SendPortDefinition,
    SendPortGroupDefinition,
)
from postroom.errors import DefinitionRefused, LockTimeout, Problem
from postroom.filters.authorisation import ApplicationProperties
from postroom.messagebox.configuration import (
    PortState,
    SendPort,
    SendPortGroup,
    read_hosts,
    read_send_port_groups,
    read_send_ports,
    schedule_to_json,
)
from postroom.messagebox.connection import Connection, operator_transaction, transaction
from postroom.messagebox.migrate import create_host
from postroom.messagebox.statements import statement
from postroom.messagebox.streams.throttle import store_thresholds
from postroom.messagebox.subscriptions import deploy_property
from postroom.operations.deployment.compare import (
    compare,
    find_problems,
    find_removal_problems,
    find_removed_locations,
    resolve_host_settings,
)
from postroom.operations.deployment.compare_groups import group_fields
from postroom.operations.deployment.declared_fields import location_fields, send_port_fields
from postroom.operations.deployment.deployed import Deployed, create_empty_deployment, read_deployed
from postroom.operations.deployment.plan import Action, ChangeKind, Plan
from postroom.operations.ports.enlistment import (
    add_member,
    enlist_group,
    enlist_port,
    remove_member,
    resubscribe_group,
    resubscribe_port,
    start_group,
    start_port,
    unenlist_group,
    unenlist_port,
)
from postroom.system_properties import SYSTEM_PROPERTIES

#: Ids are derived from names. A port that is removed and declared again gets its old id, so its instances can be
#: resumed.
_ID_NAMESPACE = uuid.UUID("6f1d8a4e-30a5-4c1c-9d43-6f6a2b7a9d10")

#: The fields of a port that its subscriptions depend on.
_SUBSCRIPTION_FIELDS = {"host", "filter", "priority"}


def plan_first_deployment(definition: ApplicationDefinition, *, home: Path) -> Plan:
    """Return what ``apply`` would do if there is no MessageBox yet."""
    return compare(definition, create_empty_deployment(), home)


def find_deployment_problems(connection: Connection, part: ApplicationDefinition, *, home: Path) -> tuple[Problem, ...]:
    """Return the conflicts of the valid ``part`` of an invalid application with the MessageBox."""
    return find_problems(part, _read_snapshot(connection, part.name), home)


def plan(connection: Connection, definition: ApplicationDefinition, *, home: Path) -> Plan:
    """Return what ``apply`` would do now, including conflicts with the MessageBox. Nothing is changed."""
    return compare(definition, _read_snapshot(connection, definition.name), home)


def _read_snapshot(connection: Connection, application: str) -> Deployed:
    """Read the deployment in a transaction of its own, or in the snapshots of the caller's transaction."""
    is_outermost = connection.info.transaction_status is TransactionStatus.IDLE

    def work(connection: Connection) -> Deployed:
        if is_outermost:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return read_deployed(connection, application)

    return transaction(connection, work)


def apply(connection: Connection, definition: ApplicationDefinition, *, home: Path) -> Plan:
    """Deploy the application in one transaction and return the executed plan.

    Raise DefinitionRefused with all problems if there are any. An unchanged application changes nothing."""
    # Before the routing lock: publishers wait for whoever holds it, and a holder that computes for seconds is ended.
    compared = _read_snapshot(connection, definition.name)
    plan_before = compare(definition, compared, home)

    def work(connection: Connection) -> Plan:
        # The lock of change_routing without its new version: applies are serialised, and no port changes its state
        # between the comparison and the changes.
        connection.execute("SELECT pg_advisory_xact_lock(7001, 0)")
        deployed = read_deployed(connection, definition.name)
        planned = plan_before if _is_same(deployed, compared) else compare(definition, deployed, home)
        problems = planned.problems or _check_removed_locations(connection, definition, deployed)
        if problems:
            raise DefinitionRefused(f"The application {definition.name!r}", problems)
        if planned.changes:
            connection.execute("SELECT change_routing()")
            _Deployment(connection, definition, deployed, planned, home).execute()
        return planned

    return operator_transaction(connection, work)


def _is_same(deployed: Deployed, compared: Deployed) -> bool:
    """Return True if nothing was deployed or changed in between. Files that were received since are checked later."""
    return replace(deployed, unfinished_files={}) == replace(compared, unfinished_files={})


def _check_removed_locations(
    connection: Connection, definition: ApplicationDefinition, deployed: Deployed
) -> tuple[Problem, ...]:
    """Lock the locations that are removed against new files, and return problems for files that are not published yet.

    A location that is claiming files at this moment counts as busy. Waiting for it would block every publish, because
    the caller has locked routing."""
    removed = find_removed_locations(definition, deployed)
    if not removed:
        return ()
    busy: dict[str, int] = {}
    for name in sorted(removed):
        try:
            with connection.transaction():
                connection.execute("SELECT FROM receive_locations WHERE name = %s FOR UPDATE NOWAIT", (name,))
        except LockTimeout:
            busy[name] = 1
    counted: dict[str, int] = dict(connection.execute(statement("queries/unfinished_files")).fetchall())
    return tuple(find_removal_problems(definition, replace(deployed, unfinished_files=busy | counted)))


class _Deployment:
    """The steps of one plan, inside one transaction."""

    def __init__(
        self, connection: Connection, definition: ApplicationDefinition, deployed: Deployed, plan: Plan, home: Path
    ) -> None:
        self._connection = connection
        self._definition = definition
        self._deployed = deployed
        self._plan = plan
        self._home = home

    def execute(self) -> None:
        """Execute all steps, in the order of their dependencies."""
        self._deploy_properties()
        self._create_hosts()
        self._host_ids = {host.name.lower(): host.host_id for host in read_hosts(self._connection)}
        self._application_id = self._store_application()
        self._remove()
        self._store_receive_ports()
        self._store_locations()
        self._store_send_ports()
        self._store_groups()

    def _deploy_properties(self) -> None:
        wanted = {**SYSTEM_PROPERTIES, **{prop.key: prop for prop in self._definition.properties}}
        for key, prop in wanted.items():
            if key not in self._deployed.properties or (prop.sensitive and key not in self._deployed.sensitive):
                deploy_property(self._connection, key, prop.value_type, sensitive=prop.sensitive)

    def _create_hosts(self) -> None:
        has_default = any(host.is_default for host in self._deployed.hosts.values())
        for step in self._plan.select(ChangeKind.HOST, Action.CREATE):
            is_default = not has_default and step.name == DEFAULT_HOST
            create_host(self._connection, step.name, is_default=is_default)
        known = {host.name.lower(): host for host in read_hosts(self._connection)}
        for step in self._plan.select(ChangeKind.HOST, Action.CREATE, Action.CHANGE):
            host = known[step.name.lower()]
            trusted, properties, throttling = resolve_host_settings(self._definition, self._deployed, host.name)
            if trusted is not host.trusted:
                self._connection.execute("SELECT set_trust(%s::smallint, %s)", (host.host_id, trusted))
            self._store_application_properties(host.host_id, properties)
            store_thresholds(self._connection, host.host_id, throttling)

    def _store_application_properties(self, host_id: int, properties: ApplicationProperties) -> None:
        self._connection.execute("DELETE FROM application_properties WHERE host_id = %s", (host_id,))
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO application_properties (host_id, property_key, value) VALUES (%s, %s, %s)",
                [(host_id, key, text) for key, text in sorted(properties)],
            )

    def _store_application(self) -> uuid.UUID:
        row = self._connection.execute(
            statement("queries/store_application"),
            (self._definition.name, Jsonb(self._definition.to_stored())),
        ).fetchone()
        assert row is not None
        application_id: uuid.UUID = row[0]
        return application_id

    def _remove(self) -> None:
        """Remove what is not declared any more. Instances stay: they can be terminated, or resumed after a new apply.

        Receive ports are removed later, because a location may move from one to another."""
        self._remove_groups_and_members()
        for step in self._plan.select(ChangeKind.SEND_PORT, Action.REMOVE):
            port = self._deployed.send_ports[step.name]
            if port.state is not PortState.BOUND:
                unenlist_port(self._connection, port)
            self._connection.execute("DELETE FROM send_ports WHERE id = %s", (port.port_id,))
        for step in self._plan.select(ChangeKind.LOCATION, Action.REMOVE):
            self._connection.execute(statement("queries/remove_receive_location"), {"name": step.name})

    def _remove_groups_and_members(self) -> None:
        declared = {group.name: group for group in self._definition.send_port_groups}
        for group in self._deployed.send_port_groups.values():
            if group.name not in declared:
                unenlist_group(self._connection, group)
                self._connection.execute("DELETE FROM send_port_groups WHERE id = %s", (group.group_id,))
                continue
            for member in group.members:
                if member.port_name not in declared[group.name].members:
                    remove_member(self._connection, group, member.port_id)

    def _store_receive_ports(self) -> None:
        declared = {port.name: port for port in self._definition.receive_ports}
        for step in self._plan.select(ChangeKind.RECEIVE_PORT, Action.CREATE, Action.CHANGE):
            port = declared[step.name]
            self._connection.execute(
                statement("queries/store_receive_port"),
                (
                    *(_derive_id(ChangeKind.RECEIVE_PORT, port.name), self._application_id, port.name),
                    *(port.route_failures, port.authentication),
                ),
            )

    def _store_locations(self) -> None:
        changed = {step.name for step in self._plan.select(ChangeKind.LOCATION, Action.CREATE, Action.CHANGE)}
        for port in self._definition.receive_ports:
            for location in port.locations:
                if location.name not in changed:
                    continue
                fields = location_fields(port, location, self._home)
                self._connection.execute(
                    statement("queries/store_receive_location"),
                    {
                        "id": _derive_id(ChangeKind.LOCATION, location.name),
                        "port": port.name,
                        "host_id": self._host_ids[location.host.lower()],
                        "name": location.name,
                        "adapter": Jsonb(fields["adapter"]),
                        "pipeline": Jsonb(fields["pipeline"]),
                        "maps": Jsonb(fields["maps"]),
                        "uri": fields["uri"],
                        "enabled": location.enabled,
                        "schedule": schedule_to_json(location.schedule),
                    },
                )
        for step in self._plan.select(ChangeKind.RECEIVE_PORT, Action.REMOVE):
            self._connection.execute("DELETE FROM receive_ports WHERE name = %s", (step.name,))

    def _store_send_ports(self) -> None:
        changed = {step.name: step for step in self._plan.select(ChangeKind.SEND_PORT, Action.CREATE, Action.CHANGE)}
        for port in self._definition.send_ports:
            if port.name not in changed:
                continue
            stored = self._store_send_port(port)
            if changed[port.name].action is Action.CREATE:
                self._set_initial_state(stored, port)
            elif _SUBSCRIPTION_FIELDS & {difference.field for difference in changed[port.name].differences}:
                resubscribe_port(self._connection, stored)

    def _store_send_port(self, port: SendPortDefinition) -> SendPort:
        fields = send_port_fields(port, self._home)
        port_id = _derive_id(ChangeKind.SEND_PORT, port.name)
        row = self._connection.execute(
            statement("queries/store_send_port"),
            {
                "id": port_id,
                "application_id": self._application_id,
                "host_id": self._host_ids[port.host.lower()],
                "name": port.name,
                "transport_id": uuid.uuid5(port_id, "primary transport"),
                "adapter": Jsonb(fields["adapter"]),
                "uri": fields["uri"],
                "filter": fields["filter"],
                "priority": fields["priority"],
                "retry_count": fields["retry count"],
                "retry_interval": fields["retry interval"],
                "route_failures": port.route_failures,
                "description": fields["description"],
                "maps": Jsonb(fields["maps"]),
            },
        ).fetchone()
        assert row is not None
        (stored,) = read_send_ports(self._connection, ids=[row[0]])
        return stored

    def _set_initial_state(self, stored: SendPort, declared: SendPortDefinition) -> None:
        """Bring a new port, which is bound, to the declared state."""
        if declared.state != "bound":
            stored = enlist_port(self._connection, stored)
        if declared.state == "started":
            start_port(self._connection, stored)

    def _store_groups(self) -> None:
        """Store new groups, changed filters and new members. Members that left were removed before their ports."""
        for step in self._plan.select(ChangeKind.SEND_PORT_GROUP, Action.CREATE, Action.CHANGE):
            declared = next(group for group in self._definition.send_port_groups if group.name == step.name)
            group = self._store_group(declared)
            if step.action is Action.CREATE:
                if declared.state != "bound":
                    group = enlist_group(self._connection, group)
                if declared.state == "started":
                    start_group(self._connection, group)
            elif "filter" in {difference.field for difference in step.differences}:
                resubscribe_group(self._connection, group)

    def _store_group(self, declared: SendPortGroupDefinition) -> SendPortGroup:
        fields = group_fields(declared)
        row = self._connection.execute(
            statement("queries/store_send_port_group"),
            {
                "id": _derive_id(ChangeKind.SEND_PORT_GROUP, declared.name),
                "application_id": self._application_id,
                "name": declared.name,
                "description": fields["description"],
                "filter": fields["filter"],
            },
        ).fetchone()
        assert row is not None
        group_id: uuid.UUID = row[0]
        (group,) = (group for group in read_send_port_groups(self._connection) if group.group_id == group_id)
        known = {member.port_name for member in group.members}
        for port in read_send_ports(self._connection):
            if port.name in declared.members and port.name not in known:
                group = add_member(self._connection, group, port)
        return group


def _derive_id(kind: ChangeKind, name: str) -> uuid.UUID:
    return uuid.uuid5(_ID_NAMESPACE, f"{kind}/{name}")
