"""On a cluster, `spark-submit` starts the pipeline, and nothing is lost when an executor dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark
import pytest

from postroom.cli import submit
from postroom.pipelines import JsonLines
from postroom.spark.java import find_java
from postroom.spark.session import make_spark_home
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.waiting import PATIENCE, wait_until

_FILES, _LINES = 6, 50
_MESSAGES = _FILES * _LINES
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom receive' AND wait_event_type = 'Lock'"
)


@contextmanager
def submitted(home: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command under `spark-submit`, on a cluster of two executors with one core each."""
    package = Path(pyspark.__file__).parent
    spark_home = make_spark_home(home / "spark", package, work=home / "work")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
    }
    options = ["--master", "local-cluster[2,1,1024]", "--driver-memory", "512m"]
    options += ["--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"]
    command = [str(spark_home / "bin" / "spark-submit"), *options, submit.__file__, *words]
    with (home / "submit.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=home)
    try:
        yield process
    finally:
        family = [*psutil.Process(process.pid).children(recursive=True)] if process.poll() is None else []
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.kill()
        process.wait()
        psutil.wait_procs(family, PATIENCE)


def executors(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [
        member
        for member in psutil.Process(process.pid).children(recursive=True)
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in _words(member)
    ]


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


@pytest.mark.sample("Spark of its own")
def test_nothing_is_lost_or_repeated_when_an_executor_is_killed_during_a_batch(
    box: Box, folder: Path, tmp_path: Path
) -> None:
    """Both tasks are at the last step of their transactions when all executors but one are killed."""
    box.add_port("Europe", "Region == 'EU'")
    add_file_location(box, folder, pipeline=JsonLines(promote=PROMOTE))
    for number in range(_FILES):
        lines = (f'{{"region": "EU", "n": {number * _LINES + line}}}' for line in range(_LINES))
        (folder / f"{number}.jsonl").write_text("\n".join(lines))
    box.one("SELECT pg_advisory_lock(7001, 0)")
    words = ["pipeline", "run", "Default", "--once", "--database", box.url, "--home", str(tmp_path)]
    with submitted(tmp_path, *words) as process:

        def tasks_wait(count: int) -> bool:
            assert process.poll() is None, (tmp_path / "submit.log").read_text()
            return bool(box.one(_WAITING) >= count)

        wait_until(lambda: tasks_wait(2), what="both tasks at their last step")
        # On a busy machine Spark may have replaced an executor that was slow to register, and list both.
        *others, survivor = executors(process)
        assert others
        for executor in others:
            executor.kill()
        wait_until(lambda: tasks_wait(3), what="another attempt of the task")
        assert survivor.is_running()
        box.one("SELECT pg_advisory_unlock(7001, 0)")
        assert process.wait(PATIENCE) == 0, (tmp_path / "submit.log").read_text()
    assert box.count("messages") == _MESSAGES
    assert box.queued() == {"Europe": _MESSAGES}
    assert len({json.loads(body)["n"] for body in box.bodies()}) == _MESSAGES
    assert sum(one.outcome["last"] for one in box.receipts() if one.outcome.get("done")) == _MESSAGES
    assert box.count("file claims") == 0
    assert not list(folder.glob("*.jsonl"))
