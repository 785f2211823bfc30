"""What the MessageBox knows about services: send ports, receive locations, send port groups, orchestrations, lookups.

It refers to no table of the schema management. So what stores, renames or removes an artifact does the same here, in
the same transaction, and ``postroom check`` compares both. The state of a service is only here. Instances refer to the
id of their service. A removed send port, receive location, orchestration or lookup keeps its row, and an application
that declares it again gets the id back, so that its instances continue.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import NamedTuple

from postroom.errors import LockTimeout
from postroom.messagebox.connection import Connection, read_records, read_value
from postroom.messagebox.statements import statement


class ServiceState(StrEnum):
    """The states of a send port, a send port group or an orchestration, and of their subscriptions. A bound one has no
    subscription. Matches of a stopped one are suspended. A lookup is always started."""

    BOUND = "bound"
    STOPPED = "stopped"
    STARTED = "started"


class StoredState(NamedTuple):
    """The state of a service, and its activation subscription. A send port group, and an older version of an
    orchestration, have none."""

    state: ServiceState = ServiceState.BOUND
    subscription_id: int | None = None


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service. ``port_name`` is the receive port of a location, and otherwise the name. ``backlog`` is what is still
    to be done with the instances of a removed service."""

    id: uuid.UUID
    kind: str
    application: str
    name: str
    port_name: str
    host_id: int | None = None
    version: int | None = None
    two_way: bool = False
    transport_id: uuid.UUID | None = None
    backlog: str = "keep"

    @property
    def display_name(self) -> str:
        """The name, of an orchestration with its version."""
        return self.name if self.version is None else format_name(self.name, self.version)


def format_name(name: str, version: int) -> str:
    """Return the name of a version of an orchestration: ``procure``, ``procure version 2``."""
    return name if version == 1 else f"{name} version {version}"


def store_service(connection: Connection, service: Service) -> None:
    """Store a service. It keeps its state."""
    connection.execute(statement("queries/store_service"), asdict(service))


def store_state(connection: Connection, service_id: uuid.UUID, state: ServiceState) -> None:
    """Store the state of a service, whose subscriptions the caller creates or removes."""
    connection.execute("UPDATE services SET state = %s WHERE id = %s", (state.value, service_id))


def read_states(connection: Connection, service_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, StoredState]:
    """Return the states of these services, except those that do not exist any more."""
    rows = connection.execute(statement("queries/read_service_states"), (list(service_ids),))
    return {id: StoredState(ServiceState(state), subscription_id) for id, state, subscription_id in rows}


def remove_service(connection: Connection, service_id: uuid.UUID, *, backlog: str = "keep") -> None:
    """Remove a send port, receive location, orchestration or lookup. Its name and its id are kept."""
    connection.execute(statement("queries/remove_service"), {"id": service_id, "backlog": backlog})


def delete_service(connection: Connection, service_id: uuid.UUID) -> None:
    """Remove a send port group, which has no instances."""
    connection.execute("DELETE FROM services WHERE id = %s", (service_id,))


def is_service_id(connection: Connection, service_id: uuid.UUID) -> bool:
    """Return True if a service has this id, or had it and was removed."""
    return bool(read_value(connection, "SELECT count(*) FROM services WHERE id = %s", service_id))


def read_removed_services(connection: Connection) -> list[Service]:
    """Return all removed services, the latest last."""
    columns = "id, kind, application, name, port_name, version, two_way, backlog"
    query = f"SELECT {columns} FROM services WHERE removed_at IS NOT NULL ORDER BY removed_at, name"
    return read_records(connection, Service, query)


def finish_backlog(connection: Connection, service_id: uuid.UUID) -> None:
    """Note that nothing is to be done any more with the instances of a removed service."""
    connection.execute("UPDATE services SET backlog = 'keep' WHERE id = %s", (service_id,))


def lock_receive_location(connection: Connection, location_id: uuid.UUID) -> bool:
    """Lock a location against new files until the transaction ends. Return False if it is claiming files now."""
    try:
        with connection.transaction():
            connection.execute("SELECT FROM services WHERE id = %s FOR UPDATE NOWAIT", (location_id,))
    except LockTimeout:
        return False
    return True
