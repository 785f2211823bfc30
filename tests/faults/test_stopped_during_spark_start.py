"""All processes of a pipeline get SIGTERM while Spark is starting. `timeout` and process managers do this."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.box import Box
from tests.support.file_location import add_file_location
from tests.support.pipelines import list_child_processes, wait_for_end
from tests.support.waiting import PATIENCE, wait_until


def test_a_stopped_run_reports_it_and_leaves_no_process(box: Box, tmp_path: Path) -> None:
    add_file_location(box, tmp_path / "in")
    words = ["pipeline", "run", "Default", "--once", "--master", "local[1]"]
    command = [sys.executable, "-m", "postroom", *words, "--home", str(tmp_path), "--database", box.url]
    log = tmp_path / "output"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or is_starting_spark(process), what="the start of the JVM")
        child_processes = list_child_processes(process)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 6, log.read_text()
        wait_for_end(child_processes)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert "The run was stopped before it was finished." in log.read_text()
    assert "Traceback" not in log.read_text()


def is_starting_spark(process: subprocess.Popen[bytes]) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(
            "org.apache.spark.deploy.SparkSubmit" in member.cmdline() for member in list_child_processes(process)
        )
    return False
