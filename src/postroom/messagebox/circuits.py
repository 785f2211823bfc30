"""The open circuit breakers of send ports, which all host instances of a host share.

While the breaker of a port is open, its messages wait in the scheduled queue without a time. release_paused_<host>,
which runs with each dequeue, makes one of them due as a probe at each interval, and all of them after the breaker is
closed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class OpenCircuit:
    """An open circuit breaker: since when, by which process and why, and its probes."""

    port_id: uuid.UUID
    opened_at: datetime
    opened_by: str
    reason: str
    next_probe_at: datetime
    probe_seq: int
    """The number of the message that is the last probe."""
    probes: int


def read_open_circuits(
    connection: Connection, *, ports: Sequence[uuid.UUID] | None = None, host_id: int | None = None
) -> dict[uuid.UUID, OpenCircuit]:
    """Return the open circuit breakers by port: of these ports or of all, of one host or of all."""
    rows = connection.execute(statement("queries/read_open_circuits"), {"ports": ports, "host_id": host_id})
    names = ("port_id", "opened_at", "opened_by", "reason", "next_probe_at", "probe_seq", "probes")
    return {row[0]: OpenCircuit(**dict(zip(names, row, strict=True))) for row in rows}


def open_circuit(
    connection: Connection,
    port_id: uuid.UUID,
    host_id: int,
    *,
    opened_by: str,
    reason: str,
    probe_interval: timedelta,
) -> None:
    """Open the circuit breaker of a port, unless it is open."""
    connection.execute(
        statement("queries/open_circuit"),
        {
            "port_id": port_id,
            "host_id": host_id,
            "opened_by": opened_by,
            "reason": reason,
            "probe_interval": probe_interval,
        },
    )


def close_circuit(connection: Connection, port_id: uuid.UUID, host_id: int) -> None:
    """Close the circuit breaker of a port. Its messages become due with the next dequeues."""
    connection.execute(statement("queries/close_circuit"), {"port_id": port_id, "host_id": host_id})


def record_failed_probe(connection: Connection, port_id: uuid.UUID, host_id: int, reason: str) -> None:
    """Record why the last probe failed."""
    parameters = {"port_id": port_id, "host_id": host_id, "reason": reason}
    connection.execute(statement("queries/record_failed_probe"), parameters)


def remove_open_circuit(connection: Connection, port_id: uuid.UUID) -> None:
    """Forget that the circuit breaker of a send port is open, because its settings have changed."""
    connection.execute("DELETE FROM open_circuits WHERE port_id = %s", (port_id,))
