"""The housekeeping jobs of the MessageBox.

    for run in run_all_jobs_once(connection):
        print(run.name, run.rows, run.error)

One job runs at a time in the whole MessageBox, under a session lock. The time of the last run of each job is in
messagebox.job_runs and decides which jobs are due. So many hosts run the jobs as often as one host.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from psycopg.rows import dict_row

from postroom.errors import LockTimeout, PostroomError, Unavailable
from postroom.messagebox.connection import (
    IDLE_TIMEOUTS,
    Connect,
    Connection,
    LazyConnection,
    read_blocking,
    read_value,
    transaction,
)
from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)

#: The advisory lock under which jobs run.
JOB_LOCK = (7001, 1)
#: PostgreSQL ends the session of a frozen process that has the lock, so that another one can run the jobs. Part of the
#: statement that locks, because the process may freeze right after it.
_SET_TIMEOUTS = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in IDLE_TIMEOUTS.items())
_RESET_TIMEOUTS = ", ".join(f"set_config('{name}', '0', false)" for name in IDLE_TIMEOUTS)

_AGES = """
    SELECT name, extract(epoch FROM clock_timestamp() - finished_at)::float8
      FROM messagebox.job_runs WHERE finished_at IS NOT NULL
"""
#: A record that is lost in a crash does no harm, so do not wait for the disk.
_RECORD = (
    "SELECT set_config('synchronous_commit', 'off', true), record_job_run(%s, clock_timestamp() - %s::interval, %s, %s)"
)
_FOLD_LOCK_TIMEOUT = "500ms"
_BATCH_SIZE = 10_000
#: After so many checks in a row that find no due job, a host assumes that another host runs the jobs.
_MAX_IDLE_CHECKS = 3
_OBSERVE_SECONDS = 5.0
#: The instances of one transaction of an operation, and the time that one run of the job takes.
OPERATION_PIECE = 5_000
_OPERATION_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The intervals of the jobs, and how long rows are kept."""

    ref_counts: timedelta = timedelta(seconds=2)
    cleanup: timedelta = timedelta(seconds=2)
    #: Also decides how soon the work of a dead host instance is taken over: one to three intervals after the grace.
    dead_processes: timedelta = timedelta(seconds=0.5)
    operations: timedelta = timedelta(seconds=1)
    others: timedelta = timedelta(seconds=60)
    #: A host instance is considered dead when its lock is missing for this time.
    grace: timedelta = timedelta(seconds=1)
    keep_receipts: timedelta = timedelta(days=7)
    keep_removed_subscriptions: timedelta = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job. ``run`` does all work that is due and returns the number of rows. ``observe`` is called whenever the job
    could run but is not due."""

    name: str
    interval: timedelta
    run: Callable[[Connection], int]
    observe: Callable[[Connection], object] | None = None


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """The result of one run. ``error`` is empty if it succeeded."""

    name: str
    rows: int = 0
    error: str = ""


class ReceiptPurge:
    """Deletes old receipts by a clock of its own, which a step of the server's clock does not set forward.

    The clock is stored in the MessageBox. A run advances it by at most the time that has passed since this process
    first saw the stored time, measured by a monotonic clock. Several processes may run the job in turn.
    """

    def __init__(self, keep: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._keep = keep
        self._monotonic = monotonic
        self._stored: datetime | None = None
        self._seen_at = 0.0
        self._read_at = -_OBSERVE_SECONDS

    def observe(self, connection: Connection) -> None:
        """Remember when the stored time was first seen. It is read every few seconds."""
        if self._monotonic() - self._read_at >= _OBSERVE_SECONDS:
            self._read(connection)

    def run(self, connection: Connection) -> int:
        """Advance the clock and delete the receipts that are too old. Return their number."""
        self._read(connection)
        elapsed = timedelta(seconds=self._monotonic() - self._seen_at)
        now = transaction(connection, lambda it: read_value(it, "SELECT advance_receipt_clock(%s)", elapsed))
        self._remember(now)
        return transaction(connection, lambda it: int(read_value(it, "SELECT purge_receipts(%s, %s)", self._keep, now)))

    def _read(self, connection: Connection) -> None:
        self._read_at = self._monotonic()
        self._remember(read_value(connection, "SELECT advance_receipt_clock(%s)", timedelta()))

    def _remember(self, stored: datetime) -> None:
        if stored != self._stored:
            self._stored, self._seen_at = stored, self._monotonic()


def build_jobs(settings: JobSettings | None = None) -> tuple[Job, ...]:
    """Return all jobs. Each job is before those that depend on its work."""
    chosen = settings or JobSettings()
    call = _run_once
    receipts = ReceiptPurge(chosen.keep_receipts)
    return (
        Job(
            name="dead_processes_cleanup",
            interval=chosen.dead_processes,
            run=call("SELECT dead_processes_cleanup(%s)", chosen.grace),
        ),
        Job(name="continue_operations", interval=chosen.operations, run=_continue_operations),
        Job(name="operate_on_instances", interval=chosen.others, run=call("SELECT operate_on_instances()")),
        Job(name="manage_message_ref_count_log", interval=chosen.ref_counts, run=_fold_ref_counts("message")),
        Job(
            name="message_cleanup",
            interval=chosen.cleanup,
            run=_run_until_done("message_cleanup"),
        ),
        Job(name="manage_part_ref_count_log", interval=chosen.ref_counts, run=_fold_ref_counts("part")),
        Job(name="parts_cleanup", interval=chosen.cleanup, run=_run_until_done("parts_cleanup")),
        Job(
            name="purge_subscriptions",
            interval=chosen.others,
            run=call("SELECT purge_subscriptions(%s)", chosen.keep_removed_subscriptions),
        ),
        Job(
            name="expire_program_subscriptions",
            interval=chosen.others,
            run=call("SELECT expire_program_subscriptions()"),
        ),
        Job(name="purge_receipts", interval=chosen.others, run=receipts.run, observe=receipts.observe),
    )


def run_due_jobs(connection: Connection, known: Sequence[Job]) -> list[JobRun]:
    """Run the jobs whose interval has passed since their last run. Run none if another session runs jobs."""
    due = _find_due(connection, known)
    for job in known:
        if job not in due and job.observe is not None:
            job.observe(connection)
    # Mostly no job is due. Checked without the lock first, which takes more time than the check.
    if not due or not read_value(connection, f"SELECT pg_try_advisory_lock(%s, %s), {_SET_TIMEOUTS}", *JOB_LOCK):
        return []
    try:
        return [_run(connection, job) for job in _find_due(connection, known)]
    finally:
        _unlock(connection)


def _find_due(connection: Connection, known: Sequence[Job]) -> list[Job]:
    # By the blocking call and in seconds, because every host does this once or twice a second.
    ages: dict[str, float] = dict(read_blocking(connection, _AGES, tuple))
    # The age is negative if the clock was set back since the last run.
    intervals = [(job, job.interval.total_seconds()) for job in known]
    return [job for job, interval in intervals if not 0 <= ages.get(job.name, interval) < interval]


def run_all_jobs_once(
    connection: Connection, settings: JobSettings | None = None, *, wait: timedelta = timedelta(seconds=60)
) -> list[JobRun]:
    """Run every job, due or not, as soon as no other session runs jobs."""
    with lock_jobs(connection, wait):
        return [_run(connection, job) for job in build_jobs(settings)]


@contextmanager
def lock_jobs(connection: Connection, wait: timedelta) -> Iterator[None]:
    """Lock the jobs, so that no other session runs one. Raise Unavailable after ``wait``."""
    try:
        with connection.transaction():
            connection.execute(
                "SELECT set_config('lock_timeout', %s, true)", (f"{int(wait.total_seconds() * 1000)}ms",)
            )
            connection.execute(f"SELECT pg_advisory_lock(%s, %s), {_SET_TIMEOUTS}", JOB_LOCK)
    except LockTimeout:
        raise Unavailable(
            f"Another session has been running the jobs for longer than {wait.total_seconds():g} s.",
            hint="Try again later. 'postroom jobs list' shows the last runs.",
        ) from None
    try:
        yield
    finally:
        _unlock(connection)


def _run(connection: Connection, job: Job) -> JobRun:
    """Run a job and record the run. Other jobs still run after a failure, unless the connection is lost."""
    started = time.monotonic()
    try:
        run = JobRun(name=job.name, rows=job.run(connection))
    except PostroomError as error:
        if connection.closed:
            raise
        run = JobRun(name=job.name, error=error.why or error.what)
    connection.execute(_RECORD, (run.name, timedelta(seconds=time.monotonic() - started), run.rows, run.error or None))
    return run


def _run_once(call: str, *arguments: object) -> Callable[[Connection], int]:
    return lambda connection: transaction(connection, lambda it: int(read_value(it, call, *arguments)))


def _run_until_done(procedure: str) -> Callable[[Connection], int]:
    """Return a job that calls a procedure, in batches, until it finds no more rows."""
    call = f"SELECT {procedure}(%s)"

    def run(connection: Connection) -> int:
        total = 0
        while rows := transaction(connection, lambda it: int(read_value(it, call, _BATCH_SIZE))):
            total += rows
        return total

    return run


def _continue_operations(connection: Connection) -> int:
    """Carry out pieces of the operations on instances, for a short time: other jobs wait. Return the number of changed
    instances."""
    total, deadline = 0, time.monotonic() + _OPERATION_SECONDS
    while time.monotonic() < deadline:
        piece = transaction(connection, _continue_oldest)
        if piece is None:
            break
        total += piece
        if not piece:
            break  # its instances are active
    return total


def _continue_oldest(connection: Connection) -> int | None:
    row = connection.execute("SELECT handled FROM continue_operation(NULL, %s)", (OPERATION_PIECE,)).fetchone()
    return None if row is None else int(row[0])


def _fold_ref_counts(kind: str) -> Callable[[Connection], int]:
    def fold(connection: Connection, log: int) -> int:
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (_FOLD_LOCK_TIMEOUT,))
        return int(read_value(connection, "SELECT fold_ref_count_log(%s, %s::smallint)", kind, log))

    def run(connection: Connection) -> int:
        total = 0
        # Twice, so that both logs are empty afterwards if no transaction writes.
        for _ in range(2):
            log = read_value(connection, "SELECT flip_ref_count_log(%s)", kind)
            if log is None:
                break
            try:
                total += transaction(connection, partial(fold, log=log))
            except LockTimeout:
                break  # a long transaction writes; the log is folded by the next run
        return total

    return run


def _unlock(connection: Connection) -> None:
    if not connection.closed:
        connection.execute(f"SELECT pg_advisory_unlock(%s, %s), {_RESET_TIMEOUTS}", JOB_LOCK)


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
    rows = connection.cursor(row_factory=dict_row).execute(
        "SELECT name, runs, started_at, finished_at, rows_last, rows_total, error FROM messagebox.job_runs"
    )
    known = {row["name"]: row for row in rows}
    return [
        JobListing(interval_seconds=job.interval.total_seconds(), **known.get(job.name, {"name": job.name}))
        for job in build_jobs()
    ]


class JobLoop:
    """Runs the jobs that are due, in a host instance. Across all hosts one job runs at a time."""

    def __init__(self, *, connect: Connect, settings: JobSettings) -> None:
        self._connection = LazyConnection(connect)
        self._jobs = build_jobs(settings)
        self._interval = min(job.interval for job in self._jobs).total_seconds()
        self._idle_checks = 0
        self.loop = BackgroundLoop("jobs", self._step)

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> float:
        runs = run_due_jobs(self._connection.get(), self._jobs)
        for run in runs:
            if run.error:
                _log.warning("job %s failed: %s", run.name, run.error)
        self._idle_checks = 0 if runs else self._idle_checks + 1
        # A host that does not run the jobs checks half as often, to save CPU time.
        return self._interval if self._idle_checks < _MAX_IDLE_CHECKS else 2 * self._interval
