"""Stores and reads the rows of declared handlers: an adapter that a host runs in one direction, with its watermarks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import dict_row

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


def read_handler_rows(connection: Connection) -> list[dict[str, Any]]:
    """Return the declared handlers, by host id, adapter and direction."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM management.handlers ORDER BY host_id, adapter, direction").fetchall()


def store_handler_rows(connection: Connection, host_id: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the declared handlers of a host."""
    connection.execute("DELETE FROM management.handlers WHERE host_id = %s", (host_id,))
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO management.handlers (host_id, adapter, direction, high_watermark, low_watermark)"
            " VALUES (%(host_id)s, %(adapter)s, %(direction)s, %(high_watermark)s, %(low_watermark)s)",
            [{**row, "host_id": host_id} for row in rows],
        )


def read_adapter_kinds(connection: Connection, host_id: int) -> dict[uuid.UUID, str]:
    """Return the kind of the adapter of each send port that has messages on a host, by the id of the port."""
    served = connection.execute("SELECT id FROM services WHERE %s = ANY (former_host_ids || host_id)", (host_id,))
    ids = [service_id for (service_id,) in served]
    rows = connection.execute("SELECT id, adapter_kind FROM send_ports WHERE id = ANY (%s)", (ids,))
    return dict(rows.fetchall())


def count_uses_of_handlers(connection: Connection) -> dict[tuple[int, str, str], int]:
    """Return the number of locations or transports that use each handler, by host id, adapter and direction."""
    return {tuple(key): count for *key, count in connection.execute(statement("queries/count_uses_of_handlers"))}
