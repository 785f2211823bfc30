"""Processes of a sink killed with -9 in the middle of a batch: everything is written, and written once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from postroom.adapters import SparkSink, SparkTable
from postroom.messagebox.check import check
from postroom.messagebox.connection import connect
from tests.support.box import Box, Region
from tests.support.pipelines import family_of, pipeline, wait_for_end
from tests.support.sinks import add_sink, lake, publish
from tests.support.waiting import wait_until

_STUCK = "FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
_TABLE = """
CREATE TABLE public.orders (message_id uuid PRIMARY KEY, interchange_id text, message_type text,
                            received_at timestamptz, "Region" text, body bytea)
"""


def tasks_of(process: subprocess.Popen[bytes]) -> list[int]:
    """Spark's Python workers: children of the daemon, which is a child of the JVM."""
    parents: dict[int, int] = {}
    for child in family_of(process):
        with suppress(psutil.NoSuchProcess):
            if "python" in child.name():
                parents[child.pid] = child.ppid()
    return [child for child, parent in parents.items() if parent in parents]


def test_a_task_the_driver_and_the_sink_killed_in_the_middle_of_a_batch(box: Box, tmp_path: Path) -> None:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute(_TABLE)
    add_sink(box, SparkSink("parquet", "lake", partition_by=[Region], interval=0))
    add_sink(box, SparkTable(box.url, "public.orders", columns=[Region], interval=0), name="Table", retry_seconds=0)
    ids = publish(box, b"x" * 200_000, *(b"%d" % n for n in range(1200)))
    with connect(box.url) as holder:
        with pipeline(box, tmp_path, master="local[1]") as first, holder.transaction():
            # A task that reads a large body waits for this, in the middle of its batch.
            holder.execute("LOCK TABLE messagebox.fragments IN ACCESS EXCLUSIVE MODE")
            wait_until(lambda: stuck(box, "postroom sink"), what="a task that reads")
            before = tasks_of(first)
            assert before
            for task in before:
                os.kill(task, signal.SIGKILL)
            wait_until(lambda: set(tasks_of(first)) - set(before), what="another task")
            family = family_of(first)
            first.kill()
            first.wait()
            wait_for_end(family)
        assert box.count("sink_batches") >= 1
        assert lake(tmp_path / "lake") == []
        with pipeline(box, tmp_path, master="local[1]"):
            with holder.transaction():
                holder.execute("LOCK TABLE public.orders IN ACCESS EXCLUSIVE MODE")
                wait_until(lambda: stuck(box, "postroom table"), what="a task that merges")
                box.connection.execute(f"SELECT pg_terminate_backend(pid) {_STUCK}", ("postroom table",))
            wait_until(lambda: box.count("work_queue") + box.count("scheduled_queue") == 0, what="empty queues")
    assert Counter(str(row["message_id"]) for row in lake(tmp_path / "lake")) == Counter(ids)
    table = box.connection.execute("SELECT message_id::text FROM public.orders").fetchall()
    assert Counter(message_id for (message_id,) in table) == Counter(ids)
    assert (box.count("sink_batches"), box.count("suspended_queue")) == (0, 0)
    assert check(box.connection) == []


def stuck(box: Box, name: str) -> bool:
    """Whether a connection of that name waits for somebody's lock."""
    return bool(box.one(f"SELECT count(*) {_STUCK}", name))
