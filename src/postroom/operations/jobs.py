"""Housekeeping: the jobs, their last runs, the consistency check, and repairs."""

from __future__ import annotations

from postroom.messagebox.audit import record_action
from postroom.messagebox.connection import Connection
from postroom.messagebox.maintenance.check import Violation, check
from postroom.messagebox.maintenance.jobs import JobListing, JobRun, list_jobs, run_all_jobs_once
from postroom.messagebox.maintenance.repair import Repair
from postroom.messagebox.maintenance.repair import repair_messagebox as repair_unrecorded
from postroom.ports.missing_secrets import find_missing_secrets

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
