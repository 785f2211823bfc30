"""A pipeline process with default settings, separate from the benchmark."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from bench.messagebox import MeasuredBox

_CODE = """
import sys
from pathlib import Path
from postroom.spark.run import run_pipeline
run_pipeline(sys.argv[1], sys.argv[2], Path(sys.argv[3]), master=sys.argv[4], as_role=True)
"""
_PATIENCE_SECONDS = 300.0


@contextmanager
def pipeline_process(box: MeasuredBox, master: str) -> Iterator[psutil.Process]:
    """Start a pipeline for the location of a MessageBox. Yield its process when the stream runs."""
    command = [sys.executable, "-c", _CODE, box.url, box.host.name, str(box.home), master]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        started = time.monotonic()
        while not box.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom receive'"):
            if process.poll() is not None or time.monotonic() - started > _PATIENCE_SECONDS:
                raise RuntimeError("The pipeline did not start.")
            time.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def find_processes(box: MeasuredBox, pipeline: psutil.Process) -> list[psutil.Process]:
    """Return the pipeline process, its JVM, its Python workers and its PostgreSQL backends."""
    servers = box.connection.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'postroom %' AND pid <> pg_backend_pid()"
    )
    return [pipeline, *pipeline.children(recursive=True), *(psutil.Process(pid) for (pid,) in servers)]
