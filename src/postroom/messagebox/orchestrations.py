"""Orchestrations in the MessageBox: which are deployed, and which instances of them wait."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from postroom.messagebox.configuration.services import (
    Service,
    ServiceState,
    StoredState,
    read_states,
    store_service,
)
from postroom.messagebox.configuration.services import (
    format_name as format_name,
)
from postroom.messagebox.connection import Connection, read_records
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class DeployedOrchestration:
    """An orchestration in one version, as it is deployed."""

    service_id: uuid.UUID
    application_id: uuid.UUID
    host_id: int
    definition: dict[str, Any]
    """The stored definition."""
    is_newest: bool
    state: ServiceState
    subscription_id: int | None

    @property
    def name(self) -> str:
        return str(self.definition["name"])

    @property
    def version(self) -> int:
        return int(self.definition["version"])

    @property
    def file(self) -> str:
        return str(self.definition["file"])

    @property
    def code(self) -> str:
        return str(self.definition["code"])

    @property
    def filter(self) -> str | None:
        text: str | None = self.definition["filter"]
        return text

    @property
    def is_ordered(self) -> bool:
        return bool(self.definition["ordered"])

    @property
    def priority(self) -> int:
        return int(self.definition["priority"])

    @property
    def logical_ports(self) -> dict[str, list[str]]:
        """The logical ports that its code names, each with its calls: send, deliver or request."""
        found: dict[str, list[str]] = {}
        for name, call in self.definition.get("ports", ()):
            found.setdefault(name, []).append(call)
        return found

    @property
    def declared_bindings(self) -> dict[str, str | None]:
        """The names of the send ports and groups that the application binds logical ports to. None: direct."""
        return dict(self.definition.get("bindings", ()))

    @property
    def convoy(self) -> list[str]:
        """The keys of the properties of its convoy."""
        return [prop["key"] for prop in self.definition["convoy"]]

    @property
    def correlations(self) -> list[list[str]]:
        """The keys of the properties of each correlation."""
        return [[prop["key"] for prop in properties] for properties in self.definition["correlations"]]


def read_orchestrations(connection: Connection, *, host_id: int | None = None) -> list[DeployedOrchestration]:
    """Return the deployed orchestrations, all or those of a host."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(statement("queries/read_orchestrations"), {"host_id": host_id}).fetchall()
    states = read_states(connection, [row["service_id"] for row in rows])
    return [DeployedOrchestration(**row, **states.get(row["service_id"], StoredState())._asdict()) for row in rows]


def count_orchestration_instances(connection: Connection, application: str) -> dict[uuid.UUID, int]:
    """Return the number of instances of each orchestration of an application, by its id. Messages that would activate
    an instance count too."""
    return dict(connection.execute(statement("queries/count_orchestration_instances"), (application,)).fetchall())


def read_instance_hosts(connection: Connection, services: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return the host of the instances of each orchestration that has some."""
    return dict(connection.execute(statement("queries/read_instance_hosts"), (list(services),)).fetchall())


@dataclass(frozen=True, kw_only=True)
class OrchestrationUse:
    """The application and the host of a version of an orchestration, and the number of its instances and messages.
    ``problem`` is why its host does not load its file."""

    service_id: uuid.UUID
    application: str
    host: str
    instances: int
    waiting_instances: int
    suspended_instances: int
    queued_messages: int
    suspended_messages: int
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class WaitingOrchestration:
    """What an instance of the orchestration ``service_id`` waits for: the next timer, and messages."""

    journals: int
    wake_at: datetime | None
    unreceived: int
    service_id: uuid.UUID
    can_read_journal: bool
    """Operators may not read it."""


@dataclass(frozen=True, kw_only=True)
class StoredJournal:
    """The journal of an instance. ``carried`` is what it has carried over from the last of ``journals`` before."""

    orchestration: str
    version: int
    journals: int
    carried: Any
    entries: Sequence[Sequence[dict[str, Any]]]

    @property
    def turns(self) -> list[dict[str, Any]]:
        return [turn for entry in self.entries for turn in entry]


def list_uses(connection: Connection, *, application: str | None = None) -> list[OrchestrationUse]:
    """Count the instances and messages of the orchestrations of one application, or of all, by name and version."""
    conditions = {"application": application}
    return read_records(connection, OrchestrationUse, statement("queries/list_orchestrations"), conditions)


def read_waiting(connection: Connection, instance_id: uuid.UUID) -> WaitingOrchestration | None:
    """Return what an instance waits for. Return None if it is no instance of an orchestration."""
    query = statement("queries/read_orchestration_instance")
    return next(iter(read_records(connection, WaitingOrchestration, query, (instance_id,))), None)


def read_stored_journal(connection: Connection, instance_id: uuid.UUID) -> StoredJournal | None:
    """Return the journal of an instance. Return None if it has none, because it has not started or has ended."""
    query = statement("queries/read_saved_journal")
    return next(iter(read_records(connection, StoredJournal, query, (instance_id,))), None)


def list_replayable_instances(
    connection: Connection, service_id: uuid.UUID, *, limit: int
) -> tuple[list[uuid.UUID], int]:
    """Return the ids of instances of an orchestration that have a journal, at most ``limit``, and the number of all."""
    rows = connection.execute(statement("queries/list_replayable_instances"), (service_id, limit)).fetchall()
    return [instance_id for instance_id, _ in rows], rows[0][1] if rows else 0


def store_orchestration(
    connection: Connection,
    definition: Mapping[str, Any],
    *,
    id: uuid.UUID,
    application_id: uuid.UUID,
    host_id: int,
    is_newest: bool,
) -> DeployedOrchestration:
    """Store an orchestration. An existing one keeps its state."""
    columns = {
        "id": id,
        "application_id": application_id,
        "host_id": host_id,
        "definition": Jsonb(definition),
        "is_newest": is_newest,
    }
    [(application,)] = connection.execute(statement("queries/store_orchestration"), columns).fetchall()
    service = Service(
        id=id,
        kind="orchestration",
        application=application,
        name=definition["name"],
        port_name=definition["name"],
        host_id=host_id,
        version=definition["version"],
        two_way=definition["answers"],
    )
    store_service(connection, service)
    return next(one for one in read_orchestrations(connection) if one.service_id == id)


def delete_orchestration(connection: Connection, service_id: uuid.UUID) -> None:
    """Delete an orchestration without an activation subscription. Its instances stay."""
    connection.execute("DELETE FROM orchestrations WHERE id = %s", (service_id,))


def find_convoy_set(connection: Connection, one: DeployedOrchestration) -> int | None:
    """Return the convoy set that an orchestration had before, or that another version has, or that its instances have
    that were kept when it was removed."""
    row = connection.execute(
        "SELECT convoy_set_id FROM orchestrations"
        " WHERE name = %s AND host_id = %s AND convoy = %s AND convoy_set_id IS NOT NULL ORDER BY version DESC LIMIT 1",
        (one.name, one.host_id, Jsonb(one.convoy)),
    ).fetchone()
    if row is None:
        arguments = (one.service_id, one.host_id, one.convoy)
        row = connection.execute(statement("queries/find_convoy_set"), arguments).fetchone()
    return None if row is None else row[0]


def store_convoy_set(connection: Connection, service_id: uuid.UUID, convoy_set_id: int) -> None:
    connection.execute("UPDATE orchestrations SET convoy_set_id = %s WHERE id = %s", (convoy_set_id, service_id))


def create_correlation_type(connection: Connection, keys: Sequence[str]) -> None:
    """Create the correlation type of these properties, unless it exists. A new one changes the routing."""
    connection.execute(
        "SELECT correlation_type(array_agg(id ORDER BY id)) FROM properties WHERE key = ANY (%s)", (list(keys),)
    )
