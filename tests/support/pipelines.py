"""Run a pipeline in its own process, which a test can kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.support.box import Box
from tests.support.waiting import PATIENCE

_PIPELINE = """
import sys
from pathlib import Path
from postroom.spark.run import run_pipeline
run_pipeline(sys.argv[1], "default", Path(sys.argv[2]), master=sys.argv[3], as_role=True)
"""


@contextmanager
def pipeline(box: Box, home: Path, *, master: str = "local[2]") -> Iterator[subprocess.Popen[bytes]]:
    """Run a pipeline process in a folder with a file that has the name of a module of the standard library."""
    (home / "queue.py").write_text("raise SystemExit('the wrong module')")
    log = home / "pipeline.log"
    with log.open("ab") as output:
        command = [sys.executable, "-P", "-c", _PIPELINE, box.url, str(home), master]
        process = subprocess.Popen(command, cwd=home, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        child_processes = list_child_processes(process)
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        # No process is left, however the test ends.
        for member in child_processes:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(child_processes, PATIENCE)


def list_child_processes(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the child processes: the JVM, and the Python processes of Spark."""
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def wait_for_end(child_processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(child_processes, PATIENCE)
    assert alive == []
