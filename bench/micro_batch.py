"""Steps of a micro-batch of one file: the receive stream against a query with Spark's default settings.

The task of the baseline is a stage after the source.

    python -m bench.micro_batch

The durations are those that Spark reports of its batches (``durationMs``), including the task.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from bench.messagebox import MeasuredBox, json_lines, measured_box
from bench.ratios import Result, compute_ratio
from bench.streaming import write_claims
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake import file_claims
from postroom.ports.receive_locations import read_receive_locations
from postroom.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_ROUNDS, _BATCHES = 5, 10
_PATIENCE_SECONDS = 300.0
_WHOLE = "triggerExecution"
#: In the order of execution.
_STEPS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")

_Steps = dict[str, float]


def measure() -> Result:
    """Return the median duration of a batch over that of the baseline."""
    with (
        measured_box() as our_box,
        measured_box() as plain_box,
        _start_process(our_box, "ours") as ours,
        _start_process(plain_box, "plain") as plain,
    ):
        _measure_batches(our_box, ours), _measure_batches(plain_box, plain)
        rounds = [(_measure_batches(our_box, ours), _measure_batches(plain_box, plain)) for _ in range(_ROUNDS)]
    ratio, spread = compute_ratio([(one[_WHOLE], other[_WHOLE]) for one, other in rounds])
    ours_by_step, plain_by_step = (list(side) for side in zip(*rounds, strict=True))
    durations = [
        f"{step} {_median(ours_by_step, step):.0f} and {_median(plain_by_step, step):.0f}" for step in (_WHOLE, *_STEPS)
    ]
    return Result(
        name="a micro-batch of one file, against one with Spark's default settings and the task as a stage of its own",
        group="C",
        measured=ratio,
        bar=1,
        at_most=True,
        spread=spread,
        detail=f"ms, ours and by default: {'; '.join(durations)}",
    )


def _median(rounds: list[_Steps], step: str) -> float:
    return statistics.median(one[step] for one in rounds)


def _measure_batches(box: MeasuredBox, process: subprocess.Popen[str]) -> _Steps:
    """Run batches of one file each. Return the median of each step in milliseconds."""
    content = [json_lines(1)[0]]
    for _ in range(_BATCHES):
        file_claims.number_claims(box.connection, write_claims(box, content))
        started = time.monotonic()
        while box.one("SELECT count(*) FROM file_claims"):
            if time.monotonic() - started > _PATIENCE_SECONDS:
                raise TimeoutError("The batch did not finish in time.")
            time.sleep(0.005)
        time.sleep(0.2)
    box.empty()
    durations = json.loads(_read_durations(process))
    assert len(durations) == _BATCHES, f"{len(durations)} batches"
    return {step: statistics.median(one.get(step, 0) for one in durations) for step in (_WHOLE, *_STEPS)}


@contextmanager
def _start_process(box: MeasuredBox, session: str) -> Iterator[subprocess.Popen[str]]:
    """Run a stream in a process. It answers every line with the durations of its new batches."""
    command = [sys.executable, "-m", "bench.micro_batch", session, box.url, box.host.name, str(box.home)]
    environment = {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        _read_durations(process)
        yield process
    finally:
        _require_pipe(process.stdin).close()
        process.wait()


def _read_durations(process: subprocess.Popen[str]) -> str:
    _require_pipe(process.stdin).write("\n")
    _require_pipe(process.stdin).flush()
    return _require_pipe(process.stdout).readline()


def _require_pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _serve(session: str, url: str, host: str, home: Path) -> None:
    with connect(url) as connection:
        login = Login(url=url, user=find_host(connection, host).role_name)
    with _start_receive_stream(login, home) if session == "ours" else _start_default_query(login, home) as query:
        last = -1
        for _ in sys.stdin:
            done = [one for one in query.recentProgress if one.batchId > last and one.numInputRows]
            last = max([last, *(one.batchId for one in done)])
            sys.stdout.write(json.dumps([dict(one.durationMs) for one in done]) + "\n")
            sys.stdout.flush()
        query.stop()


@contextmanager
def _start_receive_stream(login: Login, home: Path) -> Iterator[StreamingQuery]:
    from postroom.spark.receive.stream import start_stream
    from tests.support.spark_session import open_session

    with connect(login.url) as connection:
        [location] = read_receive_locations(connection)
    with open_session(home, master="local[2]") as session:
        yield start_stream(session, location, login=login, home=home)


@contextmanager
def _start_default_query(login: Login, home: Path) -> Iterator[StreamingQuery]:
    from pyspark.sql import SparkSession

    from bench.claims_source import load_claims, read_claims
    from postroom.spark.receive.task import TALLY_SPARK_SCHEMA, SparkReceiveTask

    with connect(login.url) as connection:
        [location] = read_receive_locations(connection)
    session = SparkSession.builder.master("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    task = SparkReceiveTask(location=location, home=home, login=login)

    def receive(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from task(read_claims(batch))

    rows = load_claims(session, login, location)
    written = rows.mapInArrow(receive, TALLY_SPARK_SCHEMA).writeStream.format("noop")
    yield written.option("checkpointLocation", str(home / "plain")).trigger(processingTime="100 milliseconds").start()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        # Import by name, so that Spark's workers can import the task.
        from bench import micro_batch

        micro_batch._serve(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        sys.stdout.write(f"{measure()}\n")
