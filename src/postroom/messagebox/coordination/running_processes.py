"""The running processes of hosts: a row and a session lock for each, and the version of the configuration that it uses.

    process_id = register_process(connection, host_id, ProcessKind.PIPELINE)     # before the configuration is read
    version = read_routing_version(connection)
    ...                                                                          # read the configuration, and apply it
    report_configuration(connection, process_id, version)

A process registers before it reads the configuration. So whoever changes the configuration either finds the process,
or the process reads the changed configuration. PostgreSQL releases the lock of a process that is dead or frozen.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from psycopg.types.json import Jsonb

from postroom.messagebox.connection import Connection, read_records, read_value
from postroom.messagebox.statements import statement

#: The class of the advisory locks of processes. The object of a lock is the id of the process.
PROCESS_LOCK = 7002

_REGISTER = """
    INSERT INTO messagebox.host_instances (host_id, kind, server, pid) VALUES (%s, %s, %s, %s)
    RETURNING id, pg_advisory_lock(%s, id)
"""


class ProcessKind(StrEnum):
    HOST = "host"
    PIPELINE = "pipeline"


@dataclass(frozen=True, kw_only=True)
class RunningProcess:
    """A process that holds its lock. It uses the configuration of ``routing_version`` or a later one."""

    process_id: int
    kind: str
    host: str
    server: str
    pid: int
    routing_version: int

    def __str__(self) -> str:
        return f"the {self.kind} {self.host} (process {self.pid} on {self.server})"


def register_process(connection: Connection, host_id: int, kind: ProcessKind) -> int:
    """Insert the row of this process and acquire its lock for the rest of the session. Return the id of the process."""
    arguments = (host_id, kind.value, socket.gethostname(), os.getpid(), PROCESS_LOCK)
    return int(read_value(connection, _REGISTER, *arguments))


def register_again(connection: Connection, host_id: int, process_id: int, *, last_session: int) -> bool:
    """Acquire the lock of a process that has lost its session. Return True if it was declared dead in the meantime."""
    connection.execute(statement("queries/end_last_session"), (PROCESS_LOCK, process_id, last_session))
    with connection.transaction():
        # The job that finds dead instances may have locked it for a moment.
        connection.execute("SET LOCAL lock_timeout = '5s'")
        connection.execute("SELECT pg_advisory_lock(%s, %s)", (PROCESS_LOCK, process_id))
        arguments = (process_id, host_id, socket.gethostname(), os.getpid())
        return bool(read_value(connection, statement("queries/register_host_instance_again"), *arguments))


def deregister_process(connection: Connection, process_id: int) -> None:
    """Delete the row of a process."""
    connection.execute("DELETE FROM messagebox.host_instances WHERE id = %s", (process_id,))


def read_routing_version(connection: Connection) -> int:
    """Return the routing version, which each change of the configuration increments."""
    return int(read_value(connection, "SELECT version FROM messagebox.routing_version"))


def change_routing(connection: Connection) -> None:
    """Lock the routing exclusively until the transaction ends, and increment its version. Running processes detect
    every change of the configuration by the version, also one that does not change the routing."""
    connection.execute("SELECT change_routing()")


def lock_deployment(connection: Connection) -> None:
    """Lock the routing exclusively until the transaction ends, without a new version: deployments are serialised, and
    no port changes its state meanwhile."""
    connection.execute("SELECT pg_advisory_xact_lock(7001, 0)")


def report_configuration(connection: Connection, process_id: int, version: int) -> None:
    """Report that a process uses the configuration of this routing version or a later one."""
    connection.execute(
        "UPDATE messagebox.host_instances SET routing_version = %s WHERE id = %s AND routing_version < %s",
        (version, process_id, version),
    )


def report_throttles(connection: Connection, process_id: int, throttles: Mapping[str, Mapping[str, Any]]) -> None:
    """Report how a process is throttled, by direction: ``delivery``, and ``publishing`` by the process itself."""
    connection.execute(
        "UPDATE messagebox.host_instances SET throttles = %s WHERE id = %s", (Jsonb(throttles), process_id)
    )


def report_problems(connection: Connection, process_id: int, problems: Mapping[uuid.UUID, str]) -> None:
    """Report why services do not work in a process, by their ids."""
    values = Jsonb({str(service_id): problem.replace("\0", "\\0") for service_id, problem in problems.items()})
    connection.execute(
        "UPDATE messagebox.host_instances SET problems = %s WHERE id = %s AND problems <> %s",
        (values, process_id, values),
    )


def list_running_processes(connection: Connection) -> list[RunningProcess]:
    """Return the processes that hold their lock, sorted by host."""
    return read_records(connection, RunningProcess, statement("queries/list_running_processes"), (PROCESS_LOCK,))


@dataclass(frozen=True, kw_only=True)
class ReportedThrottle:
    """How a running host instance is throttled in one direction. ``state`` is that of a ThrottleState."""

    host_id: int
    server: str
    pid: int
    direction: Literal["delivery", "publishing"]
    state: int
    severity: float
    delay: float
    since: datetime | None
    reason: str


def list_throttles(connection: Connection) -> list[ReportedThrottle]:
    """Return the delivery of every running host instance, and its publishing if the process itself throttles it."""
    return read_records(connection, ReportedThrottle, statement("queries/list_throttles"), (PROCESS_LOCK,))


def find_running_copies(connection: Connection, logins: Sequence[str]) -> list[str]:
    """Return the other databases of this server in which hosts with these logins run."""
    conditions = {"lock_class": PROCESS_LOCK, "logins": list(logins)}
    return [name for (name,) in connection.execute(statement("queries/find_running_copies"), conditions)]
