"""Latency of one message through an idle streaming lane, from file to committed queue row.

The baseline is the same query with Spark's default settings and trigger, and a task that neither matches nor inserts.

    python -m bench.latency

Both poll a folder in the same way, without a settle time. The clock starts when the file is renamed into the folder.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from bench.messagebox import MeasuredBox, json_lines, measured_box
from bench.pipeline import pipeline_process
from bench.ratios import Result, compute_ratio, measure_alternately
from postroom import adapters
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Login, connect
from postroom.ports.receive_locations import read_receive_locations
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.spark.java import find_java

_MESSAGES = 15
_PATIENCE_SECONDS = 300.0
_SCAN_INTERVAL = timedelta(milliseconds=100)


def measure() -> Result:
    """Return the median time of a message over that of the baseline."""
    adapter = adapters.File("in", pattern="*.jsonl", settle=0.0)
    with (
        measured_box(adapter=adapter) as ours,
        measured_box(adapter=adapter) as plain,
        pipeline_process(ours, "local[2]"),
        _plain_process(plain),
    ):
        pairs = measure_alternately(
            lambda: _measure_latency(ours, _is_queued), lambda: _measure_latency(plain, _is_acknowledged)
        )
    ratio, spread = compute_ratio(pairs)
    milliseconds = [1000 * statistics.median(side) for side in zip(*pairs, strict=True)]
    return Result(
        name="latency of one message through an idle streaming lane, from file to committed queue row, median, against"
        " the same query with Spark's default settings and no matching or insert",
        group="C",
        measured=ratio,
        bar=1,
        at_most=True,
        spread=spread,
        detail=f"{milliseconds[0]:.0f} against {milliseconds[1]:.0f} ms",
    )


def _measure_latency(box: MeasuredBox, is_done: Callable[[MeasuredBox, str], bool]) -> float:
    """Return the median time of several messages, each sent into an idle lane."""
    times = []
    content = json_lines(1)[0]
    for _ in range(_MESSAGES):
        name = f"{uuid.uuid4()}.jsonl"
        hidden = box.home / "in" / f".{name}"
        hidden.write_bytes(content)
        started = time.perf_counter()
        hidden.rename(box.home / "in" / name)
        while not is_done(box, name):
            if time.perf_counter() - started > _PATIENCE_SECONDS:
                raise TimeoutError("The message did not arrive in time.")
            time.sleep(0.002)
        times.append(time.perf_counter() - started)
        while box.one("SELECT count(*) FROM file_claims"):
            time.sleep(0.01)
        time.sleep(0.3)
        box.empty()
    return statistics.median(times)


def _is_queued(box: MeasuredBox, name: str) -> bool:
    return bool(box.one("SELECT EXISTS (SELECT FROM work_queue)"))


def _is_acknowledged(box: MeasuredBox, name: str) -> bool:
    return (box.home / name).exists()


@contextmanager
def _plain_process(box: MeasuredBox) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.latency", box.url, box.host.name, str(box.home)]
    environment = {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        started = time.monotonic()
        while not (box.home / "ready").exists():
            if process.poll() is not None or time.monotonic() - started > _PATIENCE_SECONDS:
                raise RuntimeError("The query of the baseline did not start.")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _serve(url: str, host: str, home: Path) -> None:
    """Run the baseline query over the file claims of a location."""
    from pyspark.sql import SparkSession

    from bench.claims_source import load_claims

    session = SparkSession.builder.master("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with connect(url) as connection:
        role = find_host(connection, host).role_name
        [location] = read_receive_locations(connection)
    login = Login(url=url, user=role)
    rows = load_claims(session, login, location).mapInArrow(_AcknowledgeTask(login, home), "name string")
    query = rows.writeStream.format("noop").option("checkpointLocation", str(home / "plain")).start()
    with login.connect("claims") as connection:
        claimer = FileClaimer(connection, location, home)
        (home / "ready").touch()
        while query.isActive:
            claimer.scan()
            threading.Event().wait(max(claimer.next_scan_in(_SCAN_INTERVAL).total_seconds(), 0.02))

    raise RuntimeError(f"The query ended: {query.exception()}")


class _AcknowledgeTask:
    """A task that acknowledges a file and deletes its file claim."""

    def __init__(self, login: Login, home: Path) -> None:
        self._login = login
        self._home = home

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = batch.to_pylist()
            for row in rows:
                (self._home / row["name"]).touch()
                Path(row["path"]).unlink()
            if rows:
                with self._login.connect("acknowledge") as connection:
                    connection.execute(
                        "DELETE FROM file_claims WHERE interchange_id = ANY (%s::uuid[])",
                        ([row["interchange_id"] for row in rows],),
                    )
            yield pa.RecordBatch.from_pydict({"name": [row["name"] for row in rows]})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        # Import by name, so that Spark's workers can import the task.
        from bench import latency

        latency._serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    else:
        sys.stdout.write(f"{measure()}\n")
