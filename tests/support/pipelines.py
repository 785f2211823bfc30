"""A pipeline as a process of its own, to be killed."""

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
from postroom.spark.running_pipeline import run_pipeline
run_pipeline(sys.argv[1], "default", Path(sys.argv[2]), master=sys.argv[3], as_role=True)
"""


@contextmanager
def pipeline(box: Box, home: Path, *, master: str = "local[2]") -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline process, started from a folder in which a file has the name of a module that Python needs."""
    (home / "queue.py").write_text("raise SystemExit('the wrong module')")
    log = home / "pipeline.log"
    with log.open("ab") as said:
        command = [sys.executable, "-P", "-c", _PIPELINE, box.url, str(home), master]
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
        psutil.wait_procs(family, PATIENCE)


def family_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What runs below it: the JVM, and Spark's Python processes."""
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def wait_for_end(family: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(family, PATIENCE)
    assert alive == []
