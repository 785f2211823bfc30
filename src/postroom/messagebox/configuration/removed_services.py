"""Send ports and receive locations that were removed. Their instances refer to their ids.

An application that declares one again gets the id back, so that its instances can be resumed.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass

from postroom.messagebox.connection import Connection, read_records
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class RemovedService:
    """A removed send port, or a removed location of the receive port ``port_name``. ``backlog`` is what is still to be
    done with its instances."""

    id: uuid.UUID
    kind: str
    application: str
    name: str
    port_name: str
    two_way: bool = False
    backlog: str = "keep"


def read_removed_services(connection: Connection) -> list[RemovedService]:
    """Return all removed services, the latest last."""
    columns = "id, kind, application, name, port_name, two_way, backlog"
    return read_records(connection, RemovedService, f"SELECT {columns} FROM removed_services ORDER BY removed_at, name")


def store_removed_service(connection: Connection, removed: RemovedService) -> None:
    """Keep the name and the id of a service that is removed."""
    connection.execute(statement("queries/remove_service"), asdict(removed))


def restore_service(connection: Connection, *, kind: str, application: str, name: str) -> uuid.UUID | None:
    """Take back the id of the service that the application removed last under this name. Return None if there is
    none."""
    conditions = {"kind": kind, "application": application, "name": name}
    row = connection.execute(statement("queries/restore_service"), conditions).fetchone()
    return None if row is None else row[0]


def finish_backlog(connection: Connection, service_id: uuid.UUID) -> None:
    """Note that nothing is to be done any more with the instances of a removed service."""
    connection.execute("UPDATE removed_services SET backlog = 'keep' WHERE id = %s", (service_id,))
