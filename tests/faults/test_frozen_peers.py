"""One process is frozen for ever (SIGSTOP), at each step of its work. Everything that it does not serve continues.

`make faults` runs all points, and `make test` two that a seed chooses.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.ports import send_ports
from tests.faults.frozen_peers import (
    CLAIMS_ARE_TAKEN_OVER,
    OTHERS_CONTINUE,
    POINTS,
    PUBLISHED,
    allow,
    main,
    publish_many,
)
from tests.support.box import Box, Region
from tests.support.interrupted_process import frozen_process
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

_FREQUENT_JOBS = {"dead_processes_cleanup", "manage_message_ref_count_log", "message_cleanup", "parts_cleanup"}


@pytest.mark.sample(count=2)
@pytest.mark.parametrize("point", POINTS)
def test_everything_continues_that_the_frozen_process_does_not_serve(box: Box, tmp_path: Path, point: str) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Other", "Orders.Region == 'US'", state="stopped")
    box.add_location()
    work = POINTS[point].work
    if work is None:
        publish_many(box.connection)
    recorder = RecordingAdapter()
    with (
        frozen_process(main, box.url, str(tmp_path), point),
        HostInstance(box.url, "Default", tmp_path, as_role=True, build_adapter=recorder.build),
    ):
        started: datetime = box.one("SELECT clock_timestamp()")
        limit = time.monotonic() + allow(OTHERS_CONTINUE)
        send_ports.start(box.connection, "Other")
        send_ports.stop(box.connection, "Other")
        box.agent().publish([Message.of(b"next", promoted={Region: "EU"})])
        wait_until(lambda: b"next" in recorder.bodies, what="the next message")
        assert time.monotonic() < limit
        wait_until(lambda: box.finished_jobs(since=started) >= _FREQUENT_JOBS, what="the jobs to run")
        if work is not None:
            with connect(box.url) as connection:  # what was not committed is done again
                work(connection)
        wait_until(lambda: box.count("queued") == 0, allow(CLAIMS_ARE_TAKEN_OVER), what="an empty queue")
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
    assert box.count("messages") == 0
    bodies = Counter(recorder.bodies)
    assert bodies.pop(b"next") == 1
    if work in PUBLISHED:
        assert len(bodies) == bodies.total() == PUBLISHED[work]
