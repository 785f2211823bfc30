"""Changes the states of services: send ports, send port groups, orchestrations and receive locations."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection, read_value

#: The messages that a start resumes itself. Publishers wait for it, so the others are left to an operation.
MAX_RESUMED = 1_000


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The messages that a start has resumed under the routing lock, by host id. If there were more, an operation
    resumes them without the lock."""

    hosts: Mapping[int, int] = field(default_factory=dict)
    operation_id: int | None = None

    @property
    def count(self) -> int:
        return sum(self.hosts.values())


def start_service(connection: Connection, service_id: uuid.UUID) -> None:
    """Start what is enlisted, as a part of a deployment. The audit records the deployment."""
    connection.execute("SELECT set_service_state(%s, true, %s)", (service_id, MAX_RESUMED))


def start_or_stop_service(connection: Connection, service_id: uuid.UUID, *, start: bool) -> Resumed:
    """Start or stop what is enlisted, for an operator. The function records it in the audit. Return the messages that
    were resumed, and the operation that resumes the others."""
    call = "SELECT hosts, operation_id FROM start_or_stop_service(%s, %s, %s)"
    [(hosts, operation_id)] = connection.execute(call, (service_id, start, MAX_RESUMED)).fetchall()
    return Resumed(hosts={int(host_id): count for host_id, count in hosts.items()}, operation_id=operation_id)


def set_location_enabled(connection: Connection, name: str, *, enabled: bool) -> None:
    """Let a receive location receive messages or not, for an operator. The function records it in the audit."""
    connection.execute("SELECT set_location_enabled(%s, %s)", (name, enabled))


def set_location_schedule(connection: Connection, name: str, schedule: Jsonb | None) -> None:
    """Set the times when a receive location receives messages, for an operator. The function records it in the
    audit."""
    connection.execute("SELECT set_location_schedule(%s, %s)", (name, schedule))


def retry_now(connection: Connection, port_id: uuid.UUID) -> int:
    """Make the waiting retries of a send port due now, and record it in the audit. Return their number."""
    return int(read_value(connection, "SELECT retry_now(%s)", port_id))
