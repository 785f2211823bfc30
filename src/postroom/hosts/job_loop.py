"""Runs the housekeeping jobs in a host instance."""

from __future__ import annotations

import logging

from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.maintenance.jobs import JobSettings, build_jobs, run_due_jobs
from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)

#: After so many checks in a row that find no due job, the host assumes that another host runs the jobs.
_MAX_IDLE_CHECKS = 3


class JobLoop:
    """Runs the housekeeping jobs that are due. Across all hosts one job runs at a time."""

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
