"""The JVM killed with -9: its process ends with an error, and nothing stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from postroom.private_folder import PARENT
from tests.support.box import Box
from tests.support.file_location import add_file_location
from tests.support.waiting import wait_until

_PIPELINE = """
import sys
from pathlib import Path
from postroom.spark.pipeline_process import run_pipeline
run_pipeline(sys.argv[1], "default", Path(sys.argv[2]), master="local[2]", as_role=True)
"""


@contextmanager
def pipeline(box: Box, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline process, from a folder in which a file has the name of a module that Python needs."""
    (home / "queue.py").write_text("raise SystemExit('the wrong module')")
    log = home / "pipeline.log"
    with log.open("ab") as said:
        command = [sys.executable, "-P", "-c", _PIPELINE, box.url, str(home)]
        process = subprocess.Popen(command, cwd=home, stdout=said, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        family = family_of(process)
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        # However a test ends, nothing of it is left.
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family, 10)


def family_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def wait_for_end(family: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(family, 30)
    assert alive == []


def scratch_of(process: subprocess.Popen[bytes]) -> Path:
    return PARENT / f"postroom-{os.geteuid()}" / f"spark-{process.pid}"


def test_a_killed_jvm_ends_the_process_with_an_error(box: Box, folder: Path, tmp_path: Path) -> None:
    add_file_location(box, folder)
    with pipeline(box, tmp_path) as process:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom stream'"
        wait_until(lambda: box.one(sessions) == 1, 120, what="a stream")
        family = family_of(process)
        [jvm] = [member for member in family if member.name() == "java"]
        jvm.kill()
        assert process.wait(60) == 1
        assert "Spark has died" in (tmp_path / "pipeline.log").read_text()
        wait_for_end(family)
    assert not scratch_of(process).exists()
