"""Orchestrations that receive one message and perform one step, against DBOS Transact on the same PostgreSQL.

    python -m bench.orchestrations_dbos

On both sides the messages are there before the clock starts, and the result of each step is committed on its own. DBOS
runs with the number of processes and threads that is fastest. A host runs with default settings.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.host import host_process
from bench.messagebox import MeasuredBox
from bench.orchestrations import Deployed, deployed_box, find_deployed
from bench.ratios import Result, compute_ratio, measure_alternately
from postroom.messagebox.connection import Connection, connect

_INSTANCES, _TRIED_INSTANCES, _ROUNDS = 1_000, 300, 5
#: The numbers of processes, and of threads in each, that are tried.
_CONCURRENCY = ((1, 4), (1, 16), (2, 4), (2, 16))
_DATABASE = "dbos_bench"
_STATISTICS_SECONDS = 1.5  # PostgreSQL writes its statistics after this time at the latest
_NAME = "orchestrations: one receive and one step, against DBOS Transact"
_STEP = """
@app.orchestration(activate=Kind == "order", host="Default")
async def count(order: Message) -> None:
    await step(lambda: len(order.data))
"""
_DONE = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


@dataclass(frozen=True, kw_only=True)
class Round:
    """Workflows/s, and the number of commits for each."""

    rate: float
    commits: float


def measure() -> Result:
    """Return instances/s of the host over workflows/s of DBOS."""
    if importlib.util.find_spec("dbos") is None:
        return Result(name=_NAME, group="E", measured=None, bar=1.5, detail="DBOS is not installed")
    with deployed_box(_STEP) as box:
        deployed = find_deployed(box)
        box.connection.execute(f"CREATE DATABASE {_DATABASE}")
        peer = Peer(box)
        peer.find_best_concurrency()
        pairs = measure_alternately(lambda: _measure_host(deployed), lambda: peer.run(_INSTANCES), rounds=_ROUNDS)
    ratio, spread = compute_ratio([(ours.rate, dbos.rate) for ours, dbos in pairs])
    ours, dbos = (statistics.median(one.rate for one in side) for side in zip(*pairs, strict=True))
    commits = [statistics.median(one.commits for one in side) for side in zip(*pairs, strict=True)]
    processes, threads = peer.concurrency
    return Result(
        name=_NAME,
        group="E",
        measured=ratio,
        bar=1.5,
        spread=spread,
        detail=f"{ours:,.0f} instances/s against {dbos:,.0f} workflows/s ({processes} processes of {threads} threads,"
        f" the fastest of {len(_CONCURRENCY)}); {commits[0]:.1f} commits for each against {commits[1]:.1f}",
    )


class Peer:
    """DBOS in a database of the same server."""

    def __init__(self, box: MeasuredBox) -> None:
        parts = {**conninfo_to_dict(box.url), "dbname": _DATABASE}
        self._conninfo = make_conninfo(**{name: str(value) for name, value in parts.items()})
        host, user, port = parts.get("host", ""), parts.get("user", ""), parts.get("port", 5432)
        self._url = f"postgresql+psycopg://{user}@/{_DATABASE}?host={host}&port={port}"
        self.concurrency = _CONCURRENCY[0]

    def find_best_concurrency(self) -> None:
        rates = {}
        for self.concurrency in _CONCURRENCY:
            rates[self.concurrency] = self.run(_TRIED_INSTANCES).rate
        self.concurrency = max(rates, key=rates.__getitem__)

    def run(self, count: int) -> Round:
        """Enqueue workflows with their messages, and measure until all have ended."""
        subprocess.run(self._make_command("enqueue", self._url, str(count)), check=True)
        with connect(self._conninfo) as connection:
            done = _count(connection, _DONE)
            processes, threads = self.concurrency
            with _run_processes(
                [self._make_command("work", self._url, f"worker {number}", str(threads)) for number in range(processes)]
            ):
                return _measure_rate(connection, lambda: _count(connection, _DONE) - done, count)

    def _make_command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "bench.dbos_workflows", *arguments]


def _measure_host(deployed: Deployed) -> Round:
    box = deployed.box
    box.empty()
    deployed.fill(_INSTANCES)
    with host_process(box, "Default"):
        return _measure_rate(box.connection, lambda: _INSTANCES - deployed.count_left(), _INSTANCES)


def _measure_rate(connection: Connection, done: Callable[[], int], count: int) -> Round:
    """Measure from the first tenth to the end."""
    while done() < count // 10:
        time.sleep(0.01)
    time.sleep(0.01)
    first, started, polls = done(), time.perf_counter(), 0
    commits = _count_commits(connection)
    while done() < count:
        polls += 1
        time.sleep(0.02)
    elapsed = time.perf_counter() - started
    time.sleep(_STATISTICS_SECONDS)
    return Round(
        rate=(count - first) / elapsed, commits=(_count_commits(connection) - commits - polls) / (count - first)
    )


def _count_commits(connection: Connection) -> int:
    return _count(connection, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")


def _count(connection: Connection, query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def _run_processes(commands: list[list[str]]) -> Iterator[None]:
    processes = [subprocess.Popen(command) for command in commands]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
