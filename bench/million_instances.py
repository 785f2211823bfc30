"""Resume, suspend and terminate a million instances, each by one command that is killed in the middle.

python -m bench.million_instances
python -m bench.million_instances --count 100000

The command `postroom instance resume --all` starts the operation. It is killed when a third is done, and the jobs of a
host continue. A program publishes to another port meanwhile. No host delivers.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.instance_operations import BulkOperation, list_operations
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import build_jobs, run_all_jobs_once, run_due_jobs
from postroom.messagebox.migrate import migrate
from tests.support.box import Box, Region, add_test_objects, open_box

_LOAD = Path(__file__).with_name("million_suspended.sql").read_text(encoding="utf-8")
_PIECE = 50_000
_OPERATIONS = ("resume", "suspend", "terminate")


class _Publisher:
    """Publishes one message after the other, and measures each."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.milliseconds: list[float] = []

    def _run(self) -> None:
        with connect(self._box.url) as connection:
            agent = self._box.agent(connection=connection)
            while not self._stop.is_set():
                started = time.monotonic()
                agent.publish([Message.of(b"x" * 500, promoted={Region: "US"})])
                self.milliseconds.append(1000 * (time.monotonic() - started))
                self._stop.wait(0.005)

    def __enter__(self) -> _Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def describe(self) -> str:
        median, slow = statistics.median(self.milliseconds), max(self.milliseconds)
        return f"{len(self.milliseconds):,} publishes, median {median:.1f} ms, slowest {slow:.0f} ms"


@contextmanager
def _new_box() -> Iterator[Box]:
    """Yield a new MessageBox on a new server, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        Path(folder).chmod(0o755)  # if started by root, the server runs as another account
        with EmbeddedServer(Path(folder) / "postgres") as server:
            migrate(server.url())
            with connect(server.url()) as connection:
                add_test_objects(connection)
            with open_box(server.url()) as box:
                yield box


def run(count: int) -> None:
    """Print a line for each step."""
    with _new_box() as box:
        box.add_port("Europe", "Orders.Region == 'EU'")
        box.add_port("Others", "Orders.Region == 'US'")
        started = time.monotonic()
        for _ in range(0, count, _PIECE):
            box.connection.execute(_LOAD, {"count": min(_PIECE, count), "port": "Europe"})
        run_all_jobs_once(box.connection)
        box.connection.execute("VACUUM ANALYZE")
        _print(f"loaded {count:,} suspended instances in {time.monotonic() - started:.0f} s")
        with _Publisher(box) as publisher:
            time.sleep(5)
        _print(f"  before: {publisher.describe()}")
        for kind in _OPERATIONS:
            with _Publisher(box) as publisher:
                _operate(box, kind)
            _print(f"  meanwhile: {publisher.describe()}")
            started = time.monotonic()
            run_all_jobs_once(box.connection)
            _print(f"  the jobs afterwards took {time.monotonic() - started:.0f} s")
        violations = check(box.connection)
        _print(f"postroom check finds {len(violations)} violations")


def _operate(box: Box, kind: str) -> None:
    started = time.monotonic()
    words = ["instance", kind, "--all", "--port", "Europe", "--yes", "--database", box.url]
    command = subprocess.Popen([sys.executable, "-m", "postroom", *words], stdout=subprocess.DEVNULL)
    while not (operation := _find(box.connection, kind)):
        time.sleep(0.1)
    chosen = time.monotonic() - started
    while operation.remaining > operation.total * 2 / 3:
        time.sleep(0.1)
        operation = _find(box.connection, kind) or operation
    command.kill()
    command.wait()
    killed, left = time.monotonic() - started, operation.remaining
    _print(f"{kind}: chosen in {chosen:.0f} s, command killed after {killed:.0f} s with {left:,} remaining")
    with connect(box.url) as connection:
        known = build_jobs()
        while operation.finished_at is None:
            run_due_jobs(connection, known)
            time.sleep(0.1)
            operation = _find(connection, kind) or operation
    by_jobs = time.monotonic() - started - killed
    _print(
        f"  the jobs continued for {by_jobs:.0f} s ({left / by_jobs:,.0f} instances/s); {operation.changed:,} changed"
    )


def _find(connection: Connection, kind: str) -> BulkOperation | None:
    return next((found for found in list_operations(connection, limit=1) if found.kind == kind), None)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1_000_000, help="Number of instances.")
    run(parser.parse_args().count)
