"""Stores and reads the rows of receive locations and send ports. Their definitions are JSON here."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from postroom.messagebox.configuration.services import Service, store_service
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


class PortState(IntEnum):
    """The states of a send port. A bound port has no subscription. Matches of a stopped port are suspended."""

    BOUND = 1
    STOPPED = 2
    STARTED = 3


def read_receive_location_rows(connection: Connection, *, host_id: int | None) -> list[dict[str, Any]]:
    """Return the receive locations of one host or of all hosts, by name."""
    query = _with_adapter(connection, "receive_locations")
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, {"host_id": host_id}).fetchall()


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
    """Return the send ports of one host or of all hosts, or those with these ids, by name."""
    query = _with_adapter(connection, "send_ports")
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, {"host_id": host_id, "ids": ids}).fetchall()


def store_send_port_row(connection: Connection, **columns: Any) -> uuid.UUID:
    """Store a send port and return its id. An existing one keeps its ids, its state and its subscription."""
    row = connection.execute(statement("queries/store_send_port"), _to_json(columns)).fetchone()
    assert row is not None
    id, application, name, host_id, two_way = row
    service = Service(
        id=id, kind="send port", application=application, name=name, port_name=name, host_id=host_id, two_way=two_way
    )
    store_service(connection, service)
    return service.id


def _to_json(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: Jsonb(value) if isinstance(value, dict) else value for name, value in columns.items()}


def _with_adapter(connection: Connection, table: str) -> str:
    """Return the statement that reads ports or locations. Operators get only the kinds of adapters."""
    row = connection.execute(
        "SELECT has_column_privilege(%s::text, 'adapter', 'select')", (f"management.{table}",)
    ).fetchone()
    adapter, backup = "jsonb_build_object('kind', adapter_kind)", "jsonb_build_object('kind', backup_kind)"
    if row is not None and row[0]:
        adapter, backup = "adapter", "backup_adapter"
    return statement(f"queries/read_{table}").replace("__ADAPTER__", adapter).replace("__BACKUP_ADAPTER__", backup)
