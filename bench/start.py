"""Start: from `postroom up` in a new home to the first delivered file, against a bare PySpark micro-batch.

    python -m bench.start

Both read one file that is there before they start.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.ratios import Result, compute_ratio, measure_alternately
from postroom.example_applications import get_example_folder
from postroom.spark.java import find_java

_PATIENCE_SECONDS = 300.0
_ORDER = b'{"region": "EU", "total": 1, "priority": 2}'

_BARE = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession

session = SparkSession.builder.master("local[*]").getOrCreate()
files = session.readStream.text(sys.argv[1])
query = files.writeStream.format("noop").option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
query.awaitTermination()
Path(sys.argv[3]).touch()
"""


def measure() -> Result:
    """Return the time until the first file is delivered over the time of the bare session."""
    pairs = measure_alternately(_measure_up, _measure_bare)
    ratio, spread = compute_ratio(pairs)
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Result(
        name="from `postroom up` in a new home to the first delivered file, against a bare PySpark session and one"
        " micro-batch",
        group="S",
        measured=ratio,
        bar=1.6,
        at_most=True,
        spread=spread,
        detail=f"{ours:.1f} against {bare:.1f} s",
    )


def _measure_up() -> float:
    app = get_example_folder("orders") / "app.py"
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # if started by root, the server runs as another account
        (home / "in").mkdir()
        (home / "in" / "first.json").write_bytes(_ORDER)
        command = [sys.executable, "-m", "postroom", "up", str(app), "--home", str(home)]
        return _measure_start(command, os.environ, lambda: any((home / "out" / "europe").glob("*.json")))


def _measure_bare() -> float:
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        (home / "in").mkdir()
        (home / "in" / "first.json").write_bytes(_ORDER)
        command = [sys.executable, "-c", _BARE, str(home / "in"), str(home / "checkpoint"), str(home / "done")]
        environment = {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
        return _measure_start(command, environment, (home / "done").exists)


def _measure_start(command: Sequence[str], environment: Mapping[str, str], is_done: Callable[[], bool]) -> float:
    """Return the seconds from the start of a process until it has done its first work. Stop the process."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not is_done():
            elapsed = time.perf_counter() - started
            if elapsed > _PATIENCE_SECONDS or process.poll() not in (None, 0):
                raise RuntimeError(f"{command} did not start within {elapsed:.0f} s: exit code {process.poll()}.")
            time.sleep(0.02)
        return time.perf_counter() - started
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
