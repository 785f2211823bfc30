"""Receive a CSV file of 2 GB with `postroom pipeline run --once` on two cores, and measure time and memory.

    python -m bench.large_csv [--rows N]

It is not part of a group, because it takes several minutes and 15 GB of disk, and has no baseline.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer

_BLOCK = 10_000
_ROW_BYTES = 200
_APP = """\
from postroom import Application, Property, Throttling, adapters, pipelines

Region = Property("Orders.Region", str)
app = Application("large")
app.host("Main", throttling=Throttling(messages=0))
reader = adapters.SparkReader("csv", "in", schema="region string, number long, note string", settle=0.5)
app.receive_port("LargeIn").location("large", reader, pipeline=pipelines.Rows(promote={Region: "region"}))
app.send_port("First", adapters.Null(), filter=Region == "R1")
app.send_port("Others", adapters.Null(), filter=Region != "R1")
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.large_csv", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000, help="number of rows, a multiple of 10,000")
    rows = parser.parse_args(arguments).rows // _BLOCK * _BLOCK
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "app.py").write_text(_APP)
        (home / "in").mkdir()
        size = _write(home / "in" / "large.csv", rows)
        _print(f"{rows:,} rows, {size / 1e9:.2f} GB")
        with EmbeddedServer(home / ".postroom" / "postgres") as server:
            _postroom(home, "apply", str(home / "app.py"))
            elapsed, highest = _run_pipeline(home)
            _print(f"{elapsed:,.0f} s, {rows / elapsed:,.0f} rows/s")
            for name, used in sorted(highest.values(), key=lambda one: -one[1])[:5]:
                _print(f"{used / 2**20:8,.0f} MB at most: {name}")
            with connect(server.url()) as connection:
                for table in ("spool", "work_queue", "suspended_queue"):
                    found = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
                    _print(f"{(found or (0,))[0]:12,} rows in {table}")
                same = connection.execute("SELECT count(*) = %s FROM spool", (rows,)).fetchone()
    return 0 if same == (True,) else 1


def _write(path: Path, rows: int) -> int:
    """Write numbered rows of equal length. Return the size of the file."""
    lines = []
    for number in range(_BLOCK):
        head = f"R{number % 400},@@@@@@{number:04},"
        lines.append(head + "x" * (_ROW_BYTES - 1 - len(head)))
    block = ("\n".join(lines) + "\n").encode()
    with path.open("wb") as file:
        for number in range(rows // _BLOCK):
            file.write(block.replace(b"@@@@@@", b"%06d" % number))
    return path.stat().st_size


def _run_pipeline(home: Path) -> tuple[float, dict[int, tuple[str, int]]]:
    """Run the pipeline. Return its time and the highest unique set size of each process."""
    command = [sys.executable, "-m", "postroom", "pipeline", "run", "Main", "--once"]
    started = time.monotonic()
    highest: dict[int, tuple[str, int]] = {}
    with subprocess.Popen([*command, "--home", str(home), "--master", "local[2]"]) as running:
        while running.poll() is None:
            for process in _find_processes(running.pid):
                try:
                    name, used = process.name(), process.memory_full_info().uss
                except psutil.NoSuchProcess:
                    continue
                if used > highest.get(process.pid, ("", 0))[1]:
                    highest[process.pid] = (name, used)
            time.sleep(1)
    if running.returncode:
        raise RuntimeError(f"The pipeline failed with exit code {running.returncode}.")
    return time.monotonic() - started, highest


def _find_processes(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _postroom(home: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "postroom", *arguments, "--home", str(home)], check=True)


def _print(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
