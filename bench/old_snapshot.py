"""Fold and cleanup times and the size of the ref-count logs under load, while an old snapshot is open.

python -m bench.old_snapshot                  # a minute without, three minutes with, a minute after the snapshot
python -m bench.old_snapshot --seconds 3600   # an hour with the snapshot

An old snapshot is what a long pg_dump has: vacuum removes no row that was deleted after it.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.maintenance.jobs import build_jobs
from postroom.messagebox.migrate import migrate
from postroom.messagebox.queues import HostQueues
from tests.support.box import Box, Region, add_test_objects, open_box

_BATCH_SIZE = 50
_PAUSE_SECONDS = 2.0
_JOBS = ("manage_message_ref_count_log", "message_cleanup", "manage_part_ref_count_log", "parts_cleanup")
_TABLES = ("message_ref_count_log_1", "message_ref_count_log_2", "part_ref_count_log_1", "part_ref_count_log_2")


@dataclass
class _Load:
    """A publisher, and a completer that keeps up with it."""

    box: Box
    rate: float
    stop: threading.Event = field(default_factory=threading.Event)
    published: int = 0

    def publish(self) -> None:
        with connect(self.box.url) as connection:
            agent = self.box.agent(connection=connection)
            started = time.monotonic()
            while not self.stop.is_set():
                agent.publish([Message.of(b"x" * 500, promoted={Region: "EU"}) for _ in range(_BATCH_SIZE)])
                self.published += _BATCH_SIZE
                self.stop.wait(max(0.0, started + self.published / self.rate - time.monotonic()))

    def complete(self) -> None:
        queues = HostQueues("Default")
        with connect(self.box.url) as connection:
            while not self.stop.is_set():
                claim_id = uuid.uuid4()
                claimed = queues.dequeue(
                    connection,
                    claim_id=claim_id,
                    host_instance=0,
                    service_class=ServiceClass.MESSAGING_IN_PROCESS,
                    limit=4 * _BATCH_SIZE,
                )
                if claimed:
                    queues.complete(connection, claim_id, [one.seq for one in claimed])
                else:
                    self.stop.wait(0.05)


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


def run(seconds: float, rate: float) -> None:
    """Print a line for each tenth of each phase."""
    with _new_box() as box, ThreadPoolExecutor() as threads:
        box.add_port("Everything", "exists(Region)")
        load = _Load(box, rate)
        workers = [threads.submit(load.publish), threads.submit(load.complete)]
        try:
            print("phase     second  messages   fold ms  cleanup ms  logs MB  queue MB")  # noqa: T201
            _measure(box, load, "without", min(60.0, seconds))
            with connect(box.url) as snapshot, snapshot.transaction():
                snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                snapshot.execute("SELECT pg_export_snapshot()")
                _measure(box, load, "with", seconds)
            _measure(box, load, "after", min(60.0, seconds))
        finally:
            load.stop.set()
        for worker in workers:
            worker.result()


def _measure(box: Box, load: _Load, phase: str, seconds: float) -> None:
    jobs = {job.name: job for job in build_jobs() if job.name in _JOBS}
    started = time.monotonic()
    rounds: list[dict[str, float]] = []
    next_line = seconds / 5
    with connect(box.url) as connection:
        while (elapsed := time.monotonic() - started) < seconds:
            times = {}
            for name, job in jobs.items():
                before = time.monotonic()
                job.run(connection)
                times[name] = 1000 * (time.monotonic() - before)
            rounds.append(times)
            if elapsed >= next_line:
                next_line += seconds / 5
                _print_line(connection, load, phase, elapsed, rounds)
                rounds.clear()
            load.stop.wait(_PAUSE_SECONDS)
        if rounds:
            _print_line(connection, load, phase, seconds, rounds)


def _print_line(
    connection: Connection, load: _Load, phase: str, elapsed: float, rounds: list[dict[str, float]]
) -> None:
    fold = max(sum(times[name] for name in _JOBS if name.startswith("manage")) for times in rounds)
    cleanup = max(sum(times[name] for name in _JOBS if name.endswith("cleanup")) for times in rounds)
    logs, queue = _read_megabytes(connection, _TABLES), _read_megabytes(connection, ("default_q",))
    print(  # noqa: T201
        f"{phase:<9}{elapsed:7.0f}{load.published:10}{fold:10.0f}{cleanup:12.0f}{logs:9.1f}{queue:10.1f}", flush=True
    )


def _read_megabytes(connection: Connection, tables: tuple[str, ...]) -> float:
    row = connection.execute("SELECT sum(pg_total_relation_size(t)) FROM unnest(%s::regclass[]) t", (list(tables),))
    return float((row.fetchone() or (0,))[0]) / 2**20


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=180.0, help="How long the snapshot stays open.")
    parser.add_argument("--rate", type=float, default=500.0, help="Messages per second.")
    given = parser.parse_args()
    run(given.seconds, given.rate)
