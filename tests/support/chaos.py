"""`make chaos`: pass 100,000 orders while processes are killed, frozen and restarted at random times.

    python -m tests.support.chaos [--seed N] [--orders N]

Hosts deliver and the jobs run during the test. Some files are replayed after their messages are delivered and deleted.
The times are numbers of published orders. The seed chooses them, and the test prints it. At the end the test prints
what was done and what was found.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.chaos_installation import ChaosInstallation
from tests.support.folders import open_folder
from tests.support.installation import Installation, Process
from tests.support.orders import APPLICATION, Orders
from tests.support.run_log import RunLog
from tests.support.waiting import wait_until

_FILES, _MAX_FILES = 100, 12
_MIN_ORDERS = 500
_PATIENCE = 900.0
#: How long a process is frozen. The supervisor kills it after 5 seconds, so some of them continue.
_FROZEN_SECONDS = (0.5, 10.0)
#: What is done, and how often.
_PLAN = {
    "the driver is killed": 5,
    "the driver is frozen": 2,
    "a process of Spark is frozen": 2,
    "the host is killed": 1,
    "the host is frozen": 2,
    "PostgreSQL crashes": 1,
    "PostgreSQL restarts": 1,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="Seed of the random times.")
    parser.add_argument("--orders", type=int, default=100_000, help=f"Number of orders, at least {_MIN_ORDERS}.")
    chosen = parser.parse_args(arguments)
    if chosen.orders < _MIN_ORDERS:
        parser.error(f"--orders must be at least {_MIN_ORDERS}")
    with open_folder() as folder:
        return _Chaos(folder, seed=chosen.seed, count=chosen.orders).run()


class _Chaos:
    def __init__(self, home: Path, *, seed: int, count: int) -> None:
        self._home = home
        self._seed = seed
        self._log = RunLog()
        self._generator = random.Random(seed)
        acts = [act for act, times in _PLAN.items() for _ in range(times)]
        moments = sorted(self._generator.sample(range(count * 3 // 100, count * 93 // 100), len(acts)))
        self._generator.shuffle(acts)
        self._plan = list(zip(moments, acts, strict=True))
        self._done: Counter[str] = Counter()
        self._orders = Orders(count)
        self._per_file = count // _FILES
        self._files = list(self._orders.files(per_file=self._per_file))
        self._log.print(f"seed {seed}, {count:,} orders in {len(self._files)} files")

    def run(self) -> int:
        """Run the plan and print the report. Return 1 if a problem was found."""
        problems: list[str] = []
        with Installation(self._home) as installation:
            up = installation.start("up", str(installation.write(APPLICATION)), "--master", "local[2]")
            try:
                problems = self._run(installation, up)
            except Exception as error:
                problems = [f"{type(error).__name__}: {error}", *up.output().splitlines()[-20:]]
            finally:
                self._report(problems)
        return 1 if problems else 0

    def _run(self, installation: Installation, up: Process) -> list[str]:
        chaos = ChaosInstallation(installation, up)
        kept = chaos.keep_batch(self._files[:3], list(range(3 * self._per_file)))
        feeder = threading.Thread(target=self._feed, args=(installation, self._files[3:]), daemon=True)
        feeder.start()
        for number, (moment, act) in enumerate(self._plan):
            wait_until(
                lambda moment=moment: chaos.count_published() >= moment,  # type: ignore[misc]
                _PATIENCE,
                what=f"{moment:,} orders to be published",
            )
            self._log.print(f"{chaos.count_published():,} orders are published; {act}")
            self._act(chaos, act)
            self._done[act] += 1
            if number == len(self._plan) // 2:
                wait_until(lambda: chaos.count_stored(kept.numbers) == 0, _PATIENCE, what="the first messages deleted")
                chaos.replay(kept)
                self._log.print("the first files are replayed after their messages were deleted")
        feeder.join(_PATIENCE)
        chaos.wait_for_end(self._orders, timeout=_PATIENCE)
        self._log.print("all messages are delivered and deleted")
        chaos.replay(kept)
        problems = chaos.find_problems(self._orders)
        installation.run("check")
        if (code := up.stop()) != 0:
            problems.append(f"postroom up ended with {code}")
        return problems

    def _act(self, chaos: ChaosInstallation, act: str) -> None:
        seconds = self._generator.uniform(*_FROZEN_SECONDS)
        then = self._generator.choice((signal.SIGCONT, signal.SIGKILL))
        some = self._generator.randrange(1_000)
        acts: dict[str, Callable[[], object]] = {
            "the driver is killed": chaos.kill_pipeline,
            "the driver is frozen": lambda: chaos.freeze("pipeline Main", seconds, then=then),
            "a process of Spark is frozen": lambda: chaos.freeze("pipeline Main", seconds, child=some, then=then),
            "the host is killed": lambda: chaos.kill("host Main"),
            "the host is frozen": lambda: chaos.freeze("host Main", seconds, then=then),
            "PostgreSQL crashes": lambda: chaos.end_postgres(signal.SIGQUIT),
            "PostgreSQL restarts": lambda: chaos.end_postgres(signal.SIGINT),
        }
        acts[act]()

    def _feed(self, installation: Installation, files: Sequence[tuple[str, bytes]]) -> None:
        """Drop the files, a few at a time, so that each fault happens between two files."""
        folder = self._home / "in"
        for name, content in files:
            wait_until(
                lambda: len(list(folder.rglob("*.jsonl"))) < _MAX_FILES, _PATIENCE, what="fewer files in the folder"
            )
            installation.drop_file(name, content)

    def _report(self, problems: list[str]) -> None:
        self._log.print(f"done with seed {self._seed}:")
        for act, times in _PLAN.items():
            self._log.print(f"  {self._done[act]} of {times} times {act}")
        if problems:
            self._log.print("found:")
            for problem in problems:
                self._log.print(f"  {problem}")
        else:
            routes = sum(map(len, self._orders.expected.values())) + len(self._orders.lines)
            self._log.print(
                f"found: {len(self._orders.lines):,} orders published once each, {routes:,} routes once each,"
            )
            self._log.print("  0 lost, 0 twice, 0 suspended, and a consistent MessageBox")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
