"""The housekeeping jobs of the MessageBox, and one run of each.

    for run in run_all_jobs_once(connection):
        print(run.name, run.rows, run.error)

One job runs at a time in the whole MessageBox, under a session lock. When each ran last stands in
management.job_runs, which is also what decides which are due, so that many hosts together run them as often as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from postroom.errors import LockTimeout, PostroomError, Unavailable
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.statements import statement

#: The advisory lock under which jobs run.
JOB_LOCK = (7001, 1)

_FOLD_LOCK_TIMEOUT = "500ms"
_AT_A_TIME = 10_000


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """How often the jobs run, and how patient they are."""

    ref_counts: timedelta = timedelta(seconds=2)
    cleanup: timedelta = timedelta(seconds=2)
    dead_processes: timedelta = timedelta(seconds=1)
    others: timedelta = timedelta(seconds=60)
    #: How long a host instance's lock has to be gone until the instance is taken for dead.
    grace: timedelta = timedelta(seconds=1)
    keep_receipts: timedelta = timedelta(days=7)
    keep_removed_subscriptions: timedelta = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job: ``run`` does all there is to do now and returns how many rows that were."""

    name: str
    interval: timedelta
    run: Callable[[Connection], int]


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """What one run came to; ``error`` is empty if it went well."""

    name: str
    rows: int = 0
    error: str = ""


def build_jobs(settings: JobSettings | None = None) -> tuple[Job, ...]:
    """All jobs, in the order in which they help each other."""
    chosen = settings or JobSettings()
    call = _calls
    return (
        Job(
            name="dead_processes_cleanup",
            interval=chosen.dead_processes,
            run=call("SELECT dead_processes_cleanup(%s)", chosen.grace),
        ),
        Job(name="operate_on_instances", interval=chosen.others, run=call("SELECT operate_on_instances()")),
        Job(name="manage_message_ref_count_log", interval=chosen.ref_counts, run=_folds("message")),
        Job(name="message_cleanup", interval=chosen.cleanup, run=_repeats("SELECT message_cleanup(%s)", _AT_A_TIME)),
        Job(name="manage_part_ref_count_log", interval=chosen.ref_counts, run=_folds("part")),
        Job(name="parts_cleanup", interval=chosen.cleanup, run=_repeats("SELECT parts_cleanup(%s)", _AT_A_TIME)),
        Job(
            name="purge_subscriptions",
            interval=chosen.others,
            run=call("SELECT purge_subscriptions(%s)", chosen.keep_removed_subscriptions),
        ),
        Job(name="purge_receipts", interval=chosen.others, run=call("SELECT purge_receipts(%s)", chosen.keep_receipts)),
    )


def run_due_jobs(connection: Connection, known: Sequence[Job]) -> list[JobRun]:
    """Runs those jobs whose interval has passed since their last run; none if another session is at it."""
    if not _single(connection, "SELECT pg_try_advisory_lock(%s, %s)", *JOB_LOCK):
        return []
    try:
        ages: dict[str, timedelta] = dict(
            connection.execute(
                "SELECT name, clock_timestamp() - finished_at FROM management.job_runs WHERE finished_at IS NOT NULL"
            ).fetchall()
        )
        return [_run(connection, job) for job in known if ages.get(job.name, job.interval) >= job.interval]
    finally:
        _unlock(connection)


def run_all_jobs_once(
    connection: Connection, settings: JobSettings | None = None, *, wait: timedelta = timedelta(seconds=60)
) -> list[JobRun]:
    """Runs every job, due or not, as soon as no other session is at it."""
    with _job_lock(connection, wait):
        return [_run(connection, job) for job in build_jobs(settings)]


@contextmanager
def _job_lock(connection: Connection, wait: timedelta) -> Iterator[None]:
    """No job runs elsewhere while this is held."""
    try:
        with connection.transaction():
            connection.execute(
                "SELECT set_config('lock_timeout', %s, true)", (f"{int(wait.total_seconds() * 1000)}ms",)
            )
            connection.execute("SELECT pg_advisory_lock(%s, %s)", JOB_LOCK)
    except LockTimeout:
        raise Unavailable(
            f"The jobs are being run by another session, and that took longer than {wait.total_seconds():g} s.",
            hint="Try again later; 'postroom jobs list' shows what ran when.",
        ) from None
    try:
        yield
    finally:
        _unlock(connection)


def _run(connection: Connection, job: Job) -> JobRun:
    """One run, recorded. A job that fails does not keep the others from running, unless the connection is gone."""
    started_at = _single(connection, "SELECT clock_timestamp()")
    try:
        run = JobRun(name=job.name, rows=job.run(connection))
    except PostroomError as error:
        if connection.closed:
            raise
        run = JobRun(name=job.name, error=error.why or error.what)
    with connection.transaction():
        # A record that is lost in a crash does no harm, and is not worth waiting for the disk once a second.
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute(statement("queries/record_job_run"), (run.name, started_at, run.rows, run.error or None))
    return run


def _calls(call: str, *arguments: object) -> Callable[[Connection], int]:
    return lambda connection: transaction(connection, lambda it: int(_single(it, call, *arguments)))


def _repeats(call: str, *arguments: object) -> Callable[[Connection], int]:
    """In pieces of a good size, until nothing is left."""

    def run(connection: Connection) -> int:
        total = 0
        while rows := transaction(connection, lambda it: int(_single(it, call, *arguments))):
            total += rows
        return total

    return run


def _folds(kind: str) -> Callable[[Connection], int]:
    def fold(connection: Connection, log: int) -> int:
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (_FOLD_LOCK_TIMEOUT,))
        return int(_single(connection, "SELECT fold_ref_count_log(%s, %s::smallint)", kind, log))

    def run(connection: Connection) -> int:
        total = 0
        # Twice, so that both logs are empty afterwards if nobody writes.
        for _ in range(2):
            log = _single(connection, "SELECT flip_ref_count_log(%s)", kind)
            if log is None:
                break
            try:
                total += transaction(connection, partial(fold, log=log))
            except LockTimeout:
                break  # somebody writes for long; what is in the log stays there until the next time
        return total

    return run


def _single(connection: Connection, call: str, *arguments: object) -> Any:
    row = connection.execute(call, arguments).fetchone()
    assert row is not None
    return row[0]


def _unlock(connection: Connection) -> None:
    if not connection.closed:
        connection.execute("SELECT pg_advisory_unlock(%s, %s)", JOB_LOCK)
