"""SIGTERM to all processes of a pipeline, as `timeout` and process managers send it, while Spark is still starting."""

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
from tests.support.pipelines import family_of, wait_for_end
from tests.support.waiting import PATIENCE, wait_until


def test_a_run_that_was_ended_says_so_and_leaves_nothing_behind(box: Box, tmp_path: Path) -> None:
    add_file_location(box, tmp_path / "in")
    words = ["pipeline", "run", "Default", "--once", "--master", "local[1]"]
    command = [sys.executable, "-m", "postroom", *words, "--home", str(tmp_path), "--database", box.url]
    log = tmp_path / "said"
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_until(lambda: process.poll() is not None or starts_spark(process), what="a JVM that starts")
        family = family_of(process)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 6, log.read_text()
        wait_for_end(family)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert "The run was stopped before it was finished." in log.read_text()
    assert "Traceback" not in log.read_text()


def starts_spark(process: subprocess.Popen[bytes]) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any("org.apache.spark.deploy.SparkSubmit" in member.cmdline() for member in family_of(process))
    return False
