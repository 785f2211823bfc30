"""Finds the secrets of receive locations and send ports that are missing here."""

from __future__ import annotations

from postroom.messagebox.connection import Connection
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from postroom.secrets.references import find_unavailable


def find_missing_secrets(
    connection: Connection, *, host_id: int | None = None, in_spark: bool | None = None
) -> list[str]:
    """Return a sentence for each missing secret of one host or of all hosts.

    ``in_spark`` selects what the pipelines of Spark read, or what the host instances read. None selects everything.
    A login that may not read adapters gets no sentence about them.
    """
    uses: list[tuple[str, object]] = []
    for port in read_send_ports(connection, host_id=host_id):
        if in_spark is None or port.is_sink == in_spark:
            adapters = [transport.adapter_json for transport in port.transports]
            uses.append((f"send port {port.name}", [*adapters, port.definition["pipeline"]]))
    for location in read_receive_locations(connection, host_id=host_id):
        is_selected = in_spark is None or location.adapter_type.reads_rows == in_spark
        adapter = location.adapter_json if is_selected else None
        uses.append((f"receive location {location.name}", [adapter, location.definition["pipeline"]]))
    return [f"{name}: {error.what}" for name, definition in uses for error in find_unavailable(definition)]
