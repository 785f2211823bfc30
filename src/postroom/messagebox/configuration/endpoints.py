"""Stores and reads receive ports, receive locations and send ports. Their definitions are JSON here."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from postroom.messagebox.configuration.services import Service, StoredState, read_states, store_service
from postroom.messagebox.connection import Connection, read_records, read_value
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class StoredReceivePort:
    port_id: uuid.UUID
    name: str
    definition: dict[str, Any]
    """As it is stored, without its locations."""


def read_receive_location_rows(
    connection: Connection, *, host_id: int | None = None, location_id: uuid.UUID | None = None
) -> list[dict[str, Any]]:
    """Return the receive locations of one host or of all hosts, or the one with this id, by name."""
    query = _with_definition(connection, "receive_locations")
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, {"host_id": host_id, "id": location_id}).fetchall()


def store_receive_location_row(connection: Connection, **columns: Any) -> None:
    """Store a receive location of a stored port. An existing one keeps its id, stays enabled or disabled, and keeps its
    schedule if this one has none."""
    rows = connection.execute(statement("queries/store_receive_location"), _to_json(columns))
    for id, application, name, port_name, host_id in rows.fetchall():
        service = Service(
            id=id, kind="location", application=application, name=name, port_name=port_name, host_id=host_id
        )
        store_service(connection, service)


def read_send_port_rows(
    connection: Connection, *, host_id: int | None, ids: Sequence[uuid.UUID] | None
) -> list[dict[str, Any]]:
    """Return the send ports of one host or of all hosts, or those with these ids, with their states, by name."""
    query = _with_definition(connection, "send_ports")
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query, {"host_id": host_id, "ids": ids}).fetchall()
    states = read_states(connection, [row["port_id"] for row in rows])
    return [row | states.get(row["port_id"], StoredState())._asdict() for row in rows]


def store_send_port_row(connection: Connection, **columns: Any) -> uuid.UUID:
    """Store a send port and return its id. An existing one keeps its ids and its state."""
    row = connection.execute(statement("queries/store_send_port"), _to_json(columns)).fetchone()
    assert row is not None
    id, application, name, host_id, two_way, transport_id = row
    service = Service(
        id=id,
        kind="send port",
        application=application,
        name=name,
        port_name=name,
        host_id=host_id,
        two_way=two_way,
        transport_id=transport_id,
    )
    store_service(connection, service)
    return service.id


def _to_json(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: Jsonb(value) if isinstance(value, dict) else value for name, value in columns.items()}


def _with_definition(connection: Connection, table: str) -> str:
    """Return the statement that reads ports or locations. Operators get only the kinds of adapters."""
    column = "definition" if _can_read_definitions(connection, table) else "redacted"
    return statement(f"queries/read_{table}").replace("__DEFINITION__", column)


def _can_read_definitions(connection: Connection, table: str) -> bool:
    """Return True if the login may read the settings of adapters. Operators may not."""
    arguments = (f"management.{table}",)
    return bool(read_value(connection, "SELECT has_column_privilege(%s::text, 'definition', 'select')", *arguments))


def read_receive_ports(connection: Connection, application: str) -> dict[str, StoredReceivePort]:
    """Return the receive ports of an application, by name."""
    ports = read_records(connection, StoredReceivePort, statement("queries/read_receive_ports"), (application,))
    return {port.name: port for port in ports}


def store_receive_port(connection: Connection, port: StoredReceivePort, application_id: uuid.UUID) -> None:
    arguments = (port.port_id, application_id, Jsonb(port.definition))
    connection.execute(statement("queries/store_receive_port"), arguments)


def delete_receive_port(connection: Connection, name: str) -> None:
    connection.execute("DELETE FROM receive_ports WHERE name = %s", (name,))


def read_send_port_names(connection: Connection, application: str) -> set[str]:
    """Return the names of the send ports of an application."""
    return {name for (name,) in connection.execute(statement("queries/list_send_port_names"), (application,))}


def delete_send_port(connection: Connection, port_id: uuid.UUID) -> None:
    """Delete a send port without a subscription. Its postponed messages are due, so that its host finds out."""
    connection.execute("DELETE FROM send_ports WHERE id = %s", (port_id,))
    release_postponed(connection, port_id)


def release_postponed(connection: Connection, port_id: uuid.UUID) -> None:
    """Let the postponed messages of a send port be due, so that its host decides again when it sends them."""
    connection.execute("SELECT release_postponed(%s)", (port_id,))


def delete_receive_location(connection: Connection, location_id: uuid.UUID) -> None:
    """Delete a receive location that has no unfinished files."""
    connection.execute("DELETE FROM receive_locations WHERE id = %s", (location_id,))


def rename_services(connection: Connection, table: str, names: Mapping[uuid.UUID, str]) -> None:
    """Give ports, locations or orchestrations new names, by id. They get a temporary name first, because two of them
    may swap their names."""
    rename = f"UPDATE {table} SET definition = jsonb_set(definition, '{{name}}', to_jsonb(%s::text)) WHERE id = %s"
    for id in names:
        connection.execute(rename, (str(id), id))
    for id, name in names.items():
        connection.execute(rename, (name, id))
        connection.execute("SELECT rename_service(%s, %s)", (id, name))


def read_adapter_kinds(connection: Connection, host_id: int) -> dict[uuid.UUID, str]:
    """Return the kind of the adapter of each send port that has messages on a host, by the id of the port."""
    served = connection.execute("SELECT id FROM services WHERE %s = ANY (former_host_ids || host_id)", (host_id,))
    ids = [service_id for (service_id,) in served]
    rows = connection.execute("SELECT id, adapter_kind FROM send_ports WHERE id = ANY (%s)", (ids,))
    return dict(rows.fetchall())


def count_uses_of_handlers(connection: Connection) -> dict[tuple[int, str, str], int]:
    """Return the number of locations or transports that use each handler, by host id, adapter and direction."""
    return {tuple(key): count for *key, count in connection.execute(statement("queries/count_uses_of_handlers"))}
