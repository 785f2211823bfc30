"""Memory: how much any process grows while 1 GB passes through, from folder to folder: as it is, or decompressed."""

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
    """The most that one process grew, in MB of its unique set."""
    return growth_with("bin", name="growth of any process while a 1 GB file passes through unread, in MB", group="A")


def growth_with(suffix: str, *, name: str, group: str) -> Result:
    """The same for files that end so; ``gz`` are decompressed on their way."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "in").mkdir()
        app = Path(__file__).with_name("large_app.py")
        command = [sys.executable, "-m", "postroom", "up", str(app), "--home", str(home), "--master", "local[2]"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            try:
                for number in range(_WARM_UP):
                    _pass(home, f"warm-{number}.{suffix}", 300_000, {})
                before = _sizes(running.pid)
                highest: dict[int, tuple[str, int]] = {}
                seconds = _pass(home, f"large.{suffix}", _SIZE, highest, running.pid)
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
        detail=f"the one that grew most: {process}; 1 GB took {seconds:.0f} s",
    )


def _pass(home: Path, name: str, size: int, highest: dict[int, tuple[str, int]], pid: int | None = None) -> float:
    """Drops a file, waits until the same bytes are in the other folder, and notes the highest size of each process."""
    digest = _write(home / name, size)
    started = time.monotonic()
    (home / name).rename(home / "in" / name)
    while True:
        arrived = [path for path in (home / "out").glob("*") if not path.name.startswith(".")]
        if arrived:
            break
        if time.monotonic() - started > _PATIENCE_SECONDS:
            raise TimeoutError(f"{name} did not arrive within {_PATIENCE_SECONDS:.0f} seconds")
        for process, (what, used) in (_sizes(pid) if pid is not None else {}).items():
            if used > highest.get(process, ("", 0))[1]:
                highest[process] = (what, used)
        time.sleep(0.1)
    elapsed = time.monotonic() - started
    assert _digest(arrived[0]) == digest, f"{name} arrived with other bytes than it was sent with"
    arrived[0].unlink()
    return elapsed


def _write(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as plain, _packed(plain) if path.suffix == ".gz" else plain as file:
        while size:
            piece = os.urandom(min(size, 1 << 20))
            size -= len(piece)
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _packed(file: BinaryIO) -> gzip.GzipFile:
    # Random bytes become no fewer; only how they are read is of interest.
    return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=0)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sizes(pid: int) -> dict[int, tuple[str, int]]:
    """The unique set size of every process below this one."""
    sizes = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            sizes[process.pid] = (process.name(), process.memory_full_info().uss)
        except psutil.NoSuchProcess:
            continue
    return sizes
