"""Housekeeping: the jobs, their last runs, the consistency check, and repairs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from postroom.messagebox.configuration.endpoints import find_missing_secrets
from postroom.messagebox.connection import Connection
from postroom.messagebox.maintenance.check import Violation, check
from postroom.messagebox.maintenance.jobs import JobRun, build_jobs, run_all_jobs_once
from postroom.messagebox.maintenance.repair import Repair
from postroom.messagebox.maintenance.repair import repair_messagebox as repair_unrecorded
from postroom.operations.audit import record_action

__all__ = [
    "JobListing",
    "Repair",
    "Violation",
    "check",
    "find_missing_secrets",
    "list_jobs",
    "repair_messagebox",
    "run_jobs",
]


@dataclass(frozen=True, kw_only=True)
class JobListing:
    """A job and its last run. A job that never ran has no times."""

    name: str
    interval_seconds: float
    runs: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    rows_last: int | None = None
    rows_total: int = 0
    error: str | None = None


def list_jobs(connection: Connection) -> list[JobListing]:
    """Return every job, in the order in which they run."""
    rows = connection.execute(
        "SELECT name, runs, started_at, finished_at, rows_last, rows_total, error FROM job_runs"
    ).fetchall()
    known = {row[0]: row[1:] for row in rows}
    names = ("runs", "started_at", "finished_at", "rows_last", "rows_total", "error")
    return [
        JobListing(
            name=job.name,
            interval_seconds=job.interval.total_seconds(),
            **dict(zip(names, known.get(job.name, ()), strict=False)),
        )
        for job in build_jobs()
    ]


def run_jobs(connection: Connection) -> list[JobRun]:
    """Run every job once, after waiting for a round that another host is running.

    It is recorded first: each job has its own transactions, and records its result with its last run."""
    record_action(connection, "jobs.run", "all jobs")
    return run_all_jobs_once(connection)


def repair_messagebox(connection: Connection) -> list[Repair]:
    """Repair the MessageBox and record it in the audit. Return what was changed."""

    def record(connection: Connection, repairs: list[Repair]) -> None:
        after = {repair.what: f"{repair.count} {repair.problem}" for repair in repairs}
        record_action(connection, "messagebox.repair", "messagebox", after=after)

    return repair_unrecorded(connection, record=record)
