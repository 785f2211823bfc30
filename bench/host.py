"""A host instance in a process of its own, by default with default settings."""

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
from postroom.hosts import run_host
run_host(sys.argv[1], sys.argv[2], Path(sys.argv[3]), as_role=True)
"""
_PATIENCE_SECONDS = 120.0


@contextmanager
def host_process(box: MeasuredBox, name: str, code: str = _CODE) -> Iterator[psutil.Process]:
    """Start an instance of a host. Yield its process when it has read the configuration."""
    command = [sys.executable, "-c", code, box.url, name, str(box.home)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        started = time.monotonic()
        while not box.one("SELECT 1 FROM host_instances WHERE pid = %s AND routing_version > 0", process.pid):
            if process.poll() is not None or time.monotonic() - started > _PATIENCE_SECONDS:
                raise RuntimeError(f"An instance of host {name} did not start.")
            time.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def find_server_processes(box: MeasuredBox) -> list[psutil.Process]:
    """Return all processes of the PostgreSQL server except the backend of this connection."""
    own = box.one("SELECT pg_backend_pid()")
    assert isinstance(own, int)
    server = psutil.Process(own).parent()
    assert server is not None
    return [server, *(process for process in server.children() if process.pid != own)]
