"""Processes of a pipeline are killed with kill -9. Every message is written once, and no process or file is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyspark
import pytest

from postroom.adapters import SparkSink, SparkTable
from postroom.files.private_folder import PARENT
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.spark.java import find_java
from tests.support.box import Box, Region
from tests.support.contents import Contents
from tests.support.contents.counts import Countable
from tests.support.file_location import add_file_location
from tests.support.pipelines import list_child_processes, pipeline, wait_for_end
from tests.support.sinks import add_sink, publish, read_lake
from tests.support.waiting import PATIENCE, wait_until

_BLOCKED = "FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
_TABLE = """
CREATE TABLE public.orders (message_id uuid PRIMARY KEY, interchange_id text, message_type text,
                            received_at timestamptz, "Region" text, body bytea)
"""


def list_tasks(process: subprocess.Popen[bytes]) -> list[int]:
    """Return the pids of Spark's Python workers. They are children of the daemon, which is a child of the JVM."""
    parents: dict[int, int] = {}
    for child in list_child_processes(process):
        with suppress(psutil.NoSuchProcess):
            if "python" in child.name():
                parents[child.pid] = child.ppid()
    return [child for child, parent in parents.items() if parent in parents]


def get_scratch_folder(process: subprocess.Popen[bytes]) -> Path:
    return PARENT / f"postroom-{os.geteuid()}" / f"spark-{process.pid}"


@pytest.mark.sample("killed pipeline")
def test_sinks_write_every_message_after_a_task_the_driver_a_session_and_the_jvm_are_killed(
    box: Box, tmp_path: Path
) -> None:
    """The first three are killed during a batch. The JVM is killed while the queues are empty: its process fails."""
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    box.connection.execute(_TABLE)
    add_file_location(box, tmp_path / "in")
    # Spark writes the files with partitions, and the tasks write the others.
    add_sink(box, SparkSink("parquet", "lake", interval=0))
    add_sink(box, SparkSink("parquet", "regions", partition_by=[Region], interval=0), name="Regions")
    add_sink(box, SparkTable(box.url, "public.orders", columns=[Region], interval=0), name="Table", retry_seconds=0)
    derby = f"jdbc:derby:{tmp_path}/derby;create=true"
    add_sink(box, SparkTable(derby, "orders", interval=0), name="Jdbc", retry_seconds=0)
    add_sink(box, SparkSink("xml", "xml", options={"rowTag": "message"}, interval=0), name="Other", retry_seconds=0)
    ids = publish(box, b"x" * 200_000, *(b"%d" % n for n in range(1200)))
    # A task that reads a large body waits for this lock during its batch.
    with lock(box, "fragments"), pipeline(box, tmp_path, master="local[1]") as first:
        wait_until(lambda: is_blocked(box, "postroom sink"), what="a task that waits for the lock")
        wait_until(lambda: box.count("sink batches") == 5, what="a batch of every sink")
        before = list_tasks(first)
        assert before
        for task in before:
            os.kill(task, signal.SIGKILL)
        wait_until(lambda: set(list_tasks(first)) - set(before), what="a new task")
        child_processes = list_child_processes(first)
        first.kill()
        first.wait()
        wait_for_end(child_processes)
    assert box.count("sink batches") == 5
    assert read_lake(tmp_path / "lake") == read_lake(tmp_path / "regions") == []
    with ExitStack() as table_lock:
        connection = table_lock.enter_context(connect(box.url))
        table_lock.enter_context(connection.transaction())
        connection.execute("LOCK TABLE public.orders IN ACCESS EXCLUSIVE MODE")
        with pipeline(box, tmp_path, master="local[1]") as second:
            wait_until(lambda: is_blocked(box, "postroom table"), what="a task that waits for the lock")
            box.connection.execute(f"SELECT pg_terminate_backend(pid) {_BLOCKED}", ("postroom table",))
            table_lock.close()
            wait_until(lambda: box.count("queued") + box.count("scheduled") == 0, what="empty queues")
            streams = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom stream'"
            wait_until(lambda: box.one(streams) == 1, what="a stream")
            child_processes = list_child_processes(second)
            [jvm] = [member for member in child_processes if member.name() == "java"]
            jvm.kill()
            assert second.wait(PATIENCE) == 1
            assert "Spark has died" in (tmp_path / "pipeline.log").read_text()
            wait_for_end(child_processes)
    assert not get_scratch_folder(second).exists()
    for lake in ("lake", "regions"):
        assert Counter(str(row["message_id"]) for row in read_lake(tmp_path / lake)) == Counter(ids)
    table = box.connection.execute("SELECT message_id::text FROM public.orders").fetchall()
    assert Counter(message_id for (message_id,) in table) == Counter(ids)
    assert Counter(read_derby_ids(derby)) == Counter(ids)
    # The format xml is written at least once.
    documents = "".join(file.read_text() for file in (tmp_path / "xml").glob("part-*"))
    assert set(re.findall("<message_id>(.*?)</message_id>", documents)) == set(ids)
    assert (box.count("sink batches"), box.count("suspended")) == (0, 0)
    assert check(box.connection) == []


def read_derby_ids(url: str) -> list[str]:
    """Return the message ids in a Derby table, read with the command line of Derby."""
    jars = ":".join(map(str, (Path(pyspark.__file__).parent / "jars").glob("derby*.jar")))
    command = [str(find_java() / "bin" / "java"), "-cp", jars, "org.apache.derby.tools.ij"]
    statements = f"CONNECT '{url}';\nSELECT \"message_id\" FROM orders;\nEXIT;\n"
    folder = Path(url.partition(";")[0].removeprefix("jdbc:derby:")).parent
    output = subprocess.run(command, input=statements, capture_output=True, text=True, check=True, cwd=folder).stdout
    assert "ERROR" not in output, output
    return re.findall(r"^([0-9a-f]{8}-[0-9a-f-]{27})\s*$", output, re.MULTILINE)


@contextmanager
def lock(box: Box, what: Countable) -> Iterator[None]:
    with connect(box.url) as session, session.transaction():
        Contents(session).lock(what)
        yield


def is_blocked(box: Box, name: str) -> bool:
    """Return whether a session with this application name waits for a lock."""
    return bool(box.one(f"SELECT count(*) {_BLOCKED}", name))
