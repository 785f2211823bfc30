"""The jobs of a host: one host runs them, and the others check less often whether it still does."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.jobs import JobLoop, JobSettings
from tests.support.box import Box

HOUR = timedelta(hours=1)
HOURLY = JobSettings(ref_counts=HOUR, cleanup=HOUR, dead_processes=HOUR, operations=HOUR, others=HOUR)


def test_a_host_checks_half_as_often_while_another_runs_the_jobs(box: Box) -> None:
    jobs = JobLoop(connect=partial(connect, box.url), settings=HOURLY)
    try:
        waits = [jobs._step() for _ in range(5)]
        assert waits == [3600.0, 3600.0, 3600.0, 7200.0, 7200.0]
        box.age_jobs(timedelta(hours=2))
        assert jobs._step() == 3600.0
    finally:
        jobs.close()
