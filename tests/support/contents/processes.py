"""Registered processes, what they report, and jobs."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.support.contents.statements import Statements


@dataclass(frozen=True, kw_only=True)
class RegisteredInstance:
    """A running process: a host instance or a pipeline."""

    id: int
    host_id: int
    kind: str
    server: str
    pid: int
    routing_version: int
    dead_since: datetime | None
    throttles: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunningLocation:
    location_id: uuid.UUID
    state: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class RunningSink:
    port: str
    state: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class OpenCircuit:
    probes: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobRun:
    name: str
    runs: int
    error: str | None


class Processes(Statements):
    """Registered processes, what they report, and jobs."""

    def host_instances(self) -> list[RegisteredInstance]:
        return self._read(
            RegisteredInstance,
            "SELECT id, host_id, kind, server, pid, routing_version, dead_since, throttles FROM host_instances"
            " ORDER BY id",
        )

    def add_host_instance(self, server: str = "gone", *, host_id: int = 1, pid: int = 1, is_dead: bool = False) -> int:
        """Register a host instance that does not run, and return its number."""
        number: int = self.one(
            "INSERT INTO host_instances (host_id, server, pid, dead_since)"
            " VALUES (%s, %s, %s, CASE WHEN %s THEN now() END) RETURNING id",
            host_id,
            server,
            pid,
            is_dead,
        )
        return number

    def delete_host_instance(self, number: int) -> None:
        self.connection.execute("DELETE FROM host_instances WHERE id = %s", (number,))

    def job_runs(self) -> list[JobRun]:
        return self._read(JobRun, "SELECT name, runs, error FROM job_runs ORDER BY name")

    def age_jobs(self, age: timedelta) -> None:
        """Let the last run of all jobs have ended that long ago."""
        self.connection.execute("UPDATE job_runs SET finished_at = now() - %s", (age,))

    def open_circuits(self) -> list[OpenCircuit]:
        return self._read(OpenCircuit, "SELECT probes, reason FROM open_circuits")

    def let_circuits_probe(self) -> None:
        """Let the next probe of all open circuits be due now."""
        self.connection.execute("UPDATE open_circuits SET next_probe_at = now()")

    def finished_jobs(self, *, since: datetime) -> set[str]:
        """Return the names of the jobs that have finished since then."""
        rows = self.connection.execute("SELECT name FROM job_runs WHERE finished_at > %s", (since,))
        return {name for (name,) in rows}

    def running_locations(self) -> list[RunningLocation]:
        return self._read(RunningLocation, "SELECT location_id, state, reason FROM running_locations")

    def add_running_location(self, location_id: uuid.UUID) -> None:
        """Report that a process that does not run receives for a location."""
        self.connection.execute(
            "INSERT INTO running_locations (location_id, state, server, pid) VALUES (%s, 'receiving', 'killed', 1)",
            (location_id,),
        )

    def running_sinks(self) -> list[RunningSink]:
        return self._read(
            RunningSink,
            "SELECT p.name AS port, r.state, r.reason FROM running_sinks r JOIN send_ports p ON p.id = r.port_id"
            " ORDER BY p.name",
        )
