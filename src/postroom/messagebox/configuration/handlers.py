"""The declared handlers of hosts: an adapter that a host runs in one direction, with its watermarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from postroom.application.handler import Handler
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


def read_handlers(connection: Connection) -> dict[int, tuple[Handler, ...]]:
    """Return the declared handlers by host id. A host without any has the default handlers."""
    found: defaultdict[int, list[Handler]] = defaultdict(list)
    rows = connection.execute(
        "SELECT host_id, adapter, direction, high_watermark, low_watermark FROM management.handlers"
        " ORDER BY host_id, adapter, direction"
    )
    for host_id, adapter, direction, high, low in rows:
        found[host_id].append(Handler(adapter, direction, high_watermark=high, low_watermark=low))
    return {host_id: tuple(handlers) for host_id, handlers in found.items()}


def store_handlers(connection: Connection, host_id: int, handlers: Sequence[Handler]) -> None:
    """Replace the declared handlers of a host."""
    connection.execute("DELETE FROM management.handlers WHERE host_id = %s", (host_id,))
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO management.handlers (host_id, adapter, direction, high_watermark, low_watermark)"
            " VALUES (%s, %s, %s, %s, %s)",
            [(host_id, *handler.key, handler.high_watermark, handler.low_watermark) for handler in handlers],
        )


def read_send_handlers(connection: Connection, host_id: int) -> Mapping[bytes, Handler]:
    """Return the handler of each send port that has messages on a host, by the bytes of the port id."""
    declared = {handler.key: handler for handler in read_handlers(connection).get(host_id, ())}
    ports = connection.execute(
        "SELECT id, adapter_kind FROM management.send_ports WHERE %s = ANY (former_host_ids || host_id)", (host_id,)
    )
    return {port_id.bytes: declared.get((kind, "send"), Handler(kind, "send")) for port_id, kind in ports}


def count_uses_of_handlers(connection: Connection) -> dict[tuple[int, str, str], int]:
    """Return the number of locations or transports that use each handler, by host id, adapter and direction."""
    return {tuple(key): count for *key, count in connection.execute(statement("queries/count_uses_of_handlers"))}
