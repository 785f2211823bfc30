"""Run the example procurement while its hosts are killed, frozen and cut off at random times, then count.

python -m tests.support.procurement_chaos.run [--seed N] [--seconds N] [--orders N]
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import psycopg

import postroom.examples.procurement
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.migrate import migrate
from tests.support.delivery_chaos.processes import Processes
from tests.support.delivery_chaos.record import Record
from tests.support.folders import open_folder
from tests.support.installation import Installation
from tests.support.procurement_chaos.findings import Account, find_problems
from tests.support.procurement_chaos.suppliers import OrderPlan, Programs
from tests.support.run_log import RunLog
from tests.support.waiting import wait_until

_APPLICATION = Path(postroom.examples.procurement.__path__[0]) / "app.py"
_ACCOUNT = Path(__file__).with_name("account.sql").read_text(encoding="utf-8")
_HOSTS = ("Main", "Main", "Main")
#: What is done, and how often it is chosen relative to the others.
_FAULTS = {"a host is killed": 5, "a host is frozen": 4, "connections are dropped": 1}
_PAUSE_SECONDS = (0.2, 1.5)
_PATIENCE = 180.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="Seed of the random choices.")
    parser.add_argument("--seconds", type=float, default=60, help="How long faults happen.")
    parser.add_argument("--orders", type=int, default=1_000, help="The number of instances.")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    with open_folder() as folder:
        problems = run(folder, seed=chosen.seed, seconds=chosen.seconds, orders=chosen.orders)
    return 1 if problems else 0


def run(home: Path, *, seed: int, seconds: float, orders: int) -> list[str]:
    """Run everything in this folder. Return the problems that were found."""
    server = EmbeddedServer(home / "postgres")
    try:
        server.start()
        migrate(server.url())
        with Installation(home, server.url()) as installation:
            return _Run(server, installation, seed=seed, orders=orders, seconds=seconds).run()
    finally:
        server.destroy()


class _Run:
    def __init__(
        self, server: EmbeddedServer, installation: Installation, *, seed: int, orders: int, seconds: float
    ) -> None:
        self._log = RunLog()
        self._seed = seed
        self._url = server.url()
        self._record = Record()
        self._installation = installation
        installation.run("apply", str(_APPLICATION))
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(_ACCOUNT.encode())
        self._seconds = seconds
        longest_wait = min(8.0, seconds / 4)
        self._plans = {
            number: OrderPlan.choose(number, seed=seed, longest_wait=longest_wait) for number in range(orders)
        }
        self._processes = Processes(
            server=server,
            installation=installation,
            record=self._record,
            hosts=_HOSTS,
            faults=_FAULTS,
            pause_seconds=_PAUSE_SECONDS,
        )

    def run(self) -> list[str]:
        self._log.print(f"seed {self._seed}, {len(self._plans):,} orders, {self._seconds:g} s of faults")
        programs = Programs(url=self._url, plans=self._plans, seconds=0.8 * self._seconds)
        self._processes.start()
        programs.start()
        try:
            self._processes.fail(self._seconds, seed=self._seed, log=self._log)
            self._log.print("no more faults")
            self._processes.resume_all()
            self._wait_for_end(programs)
            self._processes.stop()
            self._installation.run("check")
        except AssertionError as error:
            self._record.add_problem(str(error))
        finally:
            self._processes.resume_all()
            programs.stop()
        account = Account.read(self._url)
        problems = [*self._record.problems, *find_problems(programs, account)]
        self._report(problems, account)
        return problems

    def _wait_for_end(self, programs: Programs) -> None:
        """Wait until every order has ended, every answer is published, and every message is delivered."""
        self._wait_for("account.documents WHERE kind IN ('bought', 'failed')", len(self._plans))
        wait_until(lambda: not programs.unpublished_count, _PATIENCE, what="the publish of all answers")
        self._wait_for("messagebox.work_queue", 0)
        self._wait_for("messagebox.orchestration_instances", 0)

    def _wait_for(self, rows: str, count: int) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            query = f"SELECT count(*) >= {count} FROM {rows}" if count else f"SELECT count(*) = 0 FROM {rows}"
            wait_until(lambda: connection.execute(query.encode()).fetchone() == (True,), _PATIENCE, what=query)

    def _report(self, problems: Sequence[str], account: Account) -> None:
        faults = ", ".join(f"{count} times {fault}" for fault, count in self._processes.done.items())
        self._log.print(f"done with seed {self._seed}: {faults}")
        sent = sum(sum(sent.values()) for sent in account.sent.values())
        self._log.print(
            f"  {len(account.chosen):,} purchases, {len(account.timeouts):,} timeouts, {sent:,} messages sent,"
            f" {len(account.remaining):,} late offers left"
        )
        for problem in problems:
            self._log.print(f"  found: {problem}")
        if not problems:
            self._log.print("  found: every order ended once, every message published once, every late offer explained")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
