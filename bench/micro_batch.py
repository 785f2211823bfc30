"""A micro-batch of one file, step by step: as the receive stream runs it, against the same work in a session of Spark
as it is by default, with the task as a stage behind the source.

    python -m bench.micro_batch

What is compared is what Spark says of its own batches (``durationMs``), the work of the task included.
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
from bench.ratios import Result, ratio_of
from bench.streaming import write_claims
from postroom.messagebox.configuration import find_host, read_receive_locations
from postroom.messagebox.connection import connect
from postroom.spark.intake import file_claims
from postroom.spark.java import find_java
from postroom.spark.login import Login

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_ROUNDS, _BATCHES = 5, 10
_PATIENCE_SECONDS = 300.0
_WHOLE = "triggerExecution"
#: In the order in which they come.
_STEPS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")

_Steps = dict[str, float]


def measure() -> Result:
    """The median batch of ours over that of the plain session."""
    with (
        measured_box() as our_box,
        measured_box() as plain_box,
        _process(our_box, "ours") as ours,
        _process(plain_box, "plain") as plain,
    ):
        _batches(our_box, ours), _batches(plain_box, plain)
        rounds = [(_batches(our_box, ours), _batches(plain_box, plain)) for _ in range(_ROUNDS)]
    ratio, spread = ratio_of([(one[_WHOLE], other[_WHOLE]) for one, other in rounds])
    ours_by_step, plain_by_step = (list(side) for side in zip(*rounds, strict=True))
    told = [
        f"{step} {_median(ours_by_step, step):.0f} and {_median(plain_by_step, step):.0f}" for step in (_WHOLE, *_STEPS)
    ]
    return Result(
        name="a micro-batch of one file, against one with Spark's default settings and the task as a stage of its own",
        group="C",
        measured=ratio,
        bar=1,
        at_most=True,
        spread=spread,
        detail=f"ms, ours and by default: {'; '.join(told)}",
    )


def _median(rounds: list[_Steps], step: str) -> float:
    return statistics.median(one[step] for one in rounds)


def _batches(box: MeasuredBox, process: subprocess.Popen[str]) -> _Steps:
    """Some batches of one file each, one after the other; the median of each step in milliseconds."""
    content = [json_lines(1)[0]]
    for _ in range(_BATCHES):
        file_claims.number_claims(box.connection, write_claims(box, content))
        started = time.monotonic()
        while box.one("SELECT count(*) FROM file_claims"):
            if time.monotonic() - started > _PATIENCE_SECONDS:
                raise TimeoutError("the batch does not end")
            time.sleep(0.005)
        time.sleep(0.2)
    box.empty()
    told = json.loads(_ask(process))
    assert len(told) == _BATCHES, f"{len(told)} batches"
    return {step: statistics.median(one.get(step, 0) for one in told) for step in (_WHOLE, *_STEPS)}


@contextmanager
def _process(box: MeasuredBox, session: str) -> Iterator[subprocess.Popen[str]]:
    """A stream in a process of its own, that answers every line with what its batches took since the last."""
    command = [sys.executable, "-m", "bench.micro_batch", session, box.url, box.host.name, str(box.home)]
    environment = {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        _ask(process)
        yield process
    finally:
        _stream_of(process.stdin).close()
        process.wait()


def _ask(process: subprocess.Popen[str]) -> str:
    _stream_of(process.stdin).write("\n")
    _stream_of(process.stdin).flush()
    return _stream_of(process.stdout).readline()


def _stream_of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _serve(session: str, url: str, host: str, home: Path) -> None:
    with connect(url) as connection:
        login = Login(url=url, user=find_host(connection, host).role_name)
    with _ours(login, home) if session == "ours" else _plain(login, home) as query:
        last = -1
        for _ in sys.stdin:
            done = [one for one in query.recentProgress if one.batchId > last and one.numInputRows]
            last = max([last, *(one.batchId for one in done)])
            sys.stdout.write(json.dumps([dict(one.durationMs) for one in done]) + "\n")
            sys.stdout.flush()
        query.stop()


@contextmanager
def _ours(login: Login, home: Path) -> Iterator[StreamingQuery]:
    from postroom.spark.receive.stream import start_stream
    from postroom.spark.session import open_session

    with connect(login.url) as connection:
        [location] = read_receive_locations(connection)
    with open_session(home, master="local[2]") as session:
        yield start_stream(session, location, login=login, home=home)


@contextmanager
def _plain(login: Login, home: Path) -> Iterator[StreamingQuery]:
    from pyspark.sql import SparkSession

    from bench.claims_source import load_claims, read_claims
    from postroom.spark.receive.sources import ClaimedFiles
    from postroom.spark.receive.tally import TALLY_SCHEMA
    from postroom.spark.receive.task import ReceiveTask

    with connect(login.url) as connection:
        [location] = read_receive_locations(connection)
    session = SparkSession.builder.master("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    task = ReceiveTask(source=ClaimedFiles(location=location, home=home), login=login)

    def receive(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from task(read_claims(batch))

    rows = load_claims(session, login, location)
    written = rows.mapInArrow(receive, TALLY_SCHEMA).writeStream.format("noop")
    yield written.option("checkpointLocation", str(home / "plain")).trigger(processingTime="100 milliseconds").start()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        # Under its real name, by which Spark's workers find what runs in them.
        from bench import micro_batch

        micro_batch._serve(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        sys.stdout.write(f"{measure()}\n")
