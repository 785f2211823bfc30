"""Memory: the growth of any process while a file of 1 GB passes from folder to folder, unread or decompressed."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

import psutil

from bench.ratios import Result

_SIZE = 1 << 30
_WARM_UP = 5
_PATIENCE_SECONDS = 600.0


def measure() -> Result:
    """Return the highest growth of a process, in MB of its unique set size."""
    return measure_growth("bin", name="growth of any process while a 1 GB file passes through unread, in MB", group="A")


def measure_growth(suffix: str, *, name: str, group: str) -> Result:
    """Return the highest growth for files with the suffix. Files with ``gz`` are decompressed."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "in").mkdir()
        app = Path(__file__).with_name("large_app.py")
        command = [sys.executable, "-m", "postroom", "up", str(app), "--home", str(home), "--master", "local[2]"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            try:
                for number in range(_WARM_UP):
                    _send_file(home, f"warm-{number}.{suffix}", 300_000, {})
                before = _read_sizes(running.pid)
                highest: dict[int, tuple[str, int]] = {}
                seconds = _send_file(home, f"large.{suffix}", _SIZE, highest, running.pid)
            finally:
                running.terminate()
                running.wait()
    growth = {pid: (name, size - before.get(pid, (name, 0))[1]) for pid, (name, size) in highest.items()}
    process, most = max(growth.values(), key=lambda one: one[1])
    return Result(
        name=name,
        group=group,
        measured=most / 2**20,
        bar=300,
        at_most=True,
        detail=f"process with the highest growth: {process}; 1 GB took {seconds:.0f} s",
    )


def _send_file(home: Path, name: str, size: int, highest: dict[int, tuple[str, int]], pid: int | None = None) -> float:
    """Drop a file, wait until it is delivered unchanged, and record the highest size of each process."""
    digest = _write(home / name, size)
    started = time.monotonic()
    (home / name).rename(home / "in" / name)
    while True:
        arrived = [path for path in (home / "out").glob("*") if not path.name.startswith(".")]
        if arrived:
            break
        if time.monotonic() - started > _PATIENCE_SECONDS:
            raise TimeoutError(f"{name} did not arrive within {_PATIENCE_SECONDS:.0f} seconds")
        for process, (what, used) in (_read_sizes(pid) if pid is not None else {}).items():
            if used > highest.get(process, ("", 0))[1]:
                highest[process] = (what, used)
        time.sleep(0.1)
    elapsed = time.monotonic() - started
    assert _compute_digest(arrived[0]) == digest, f"{name} was changed on its way"
    arrived[0].unlink()
    return elapsed


def _write(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as plain, _open_gzip(plain) if path.suffix == ".gz" else plain as file:
        while size:
            piece = os.urandom(min(size, 1 << 20))
            size -= len(piece)
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _open_gzip(file: BinaryIO) -> gzip.GzipFile:
    # Random bytes cannot be compressed, and only the reading is measured.
    return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=0)


def _compute_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_sizes(pid: int) -> dict[int, tuple[str, int]]:
    """Return the unique set size of every child process."""
    sizes = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            sizes[process.pid] = (process.name(), process.memory_full_info().uss)
        except psutil.NoSuchProcess:
            continue
    return sizes
