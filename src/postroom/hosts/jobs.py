"""The housekeeping inside every host: whoever finds the others idle runs the jobs that are due."""

from __future__ import annotations

import logging

from postroom.background_loop import BackgroundLoop
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.jobs import JobSettings, jobs, run_due_jobs

_log = logging.getLogger(__name__)


class JobLoop:
    """Looks several times within the shortest interval whether a job is due; across all hosts one runs at a time."""

    def __init__(self, *, connect: Connect, settings: JobSettings) -> None:
        self._connection = LazyConnection(connect)
        self._jobs = jobs(settings)
        self._tick = min(job.interval for job in self._jobs).total_seconds() / 2
        self.loop = BackgroundLoop("jobs", self._step)

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> float:
        for run in run_due_jobs(self._connection.get(), self._jobs):
            if run.error:
                _log.warning("job %s failed: %s", run.name, run.error)
        return self._tick
