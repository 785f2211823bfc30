"""`make chaos`: 100,000 orders. The driver is killed five times and PostgreSQL is restarted twice, at random times.

    python -m tests.support.chaos [--seed N] [--orders N]

Hosts deliver and the jobs run during the test. Some files are replayed after their messages are delivered and deleted.
The times are numbers of published orders. The seed chooses them, and the test prints it.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.chaos_installation import ChaosInstallation
from tests.support.folders import open_folder
from tests.support.installation import Installation
from tests.support.orders import APPLICATION, Orders
from tests.support.waiting import wait_until

_FILES, _MAX_FILES = 100, 12
_PATIENCE = 900.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="Seed of the random times.")
    parser.add_argument("--orders", type=int, default=100_000, help="Number of orders.")
    chosen = parser.parse_args(arguments)
    with open_folder() as folder:
        _Chaos(folder, seed=chosen.seed, count=chosen.orders).run()
    return 0


class _Chaos:
    def __init__(self, home: Path, *, seed: int, count: int) -> None:
        self._home = home
        self._started = time.monotonic()
        generator = random.Random(seed)
        moments = sorted(generator.sample(range(count * 3 // 100, count * 93 // 100), 7))
        what = ["driver"] * 5 + ["crash", "restart"]
        generator.shuffle(what)
        self._plan = list(zip(moments, what, strict=True))
        self._orders = Orders(count)
        self._per_file = count // _FILES
        self._files = list(self._orders.files(per_file=self._per_file))
        self._report(f"seed {seed}, {count:,} orders in {len(self._files)} files")
        self._report(
            "faults by number of published orders: " + ", ".join(f"{moment:,} {one}" for moment, one in self._plan)
        )

    def run(self) -> None:
        with Installation(self._home) as installation:
            up = installation.start("up", str(installation.write(APPLICATION)), "--master", "local[2]")
            chaos = ChaosInstallation(installation, up)
            kept = chaos.keep_batch(self._files[:3], list(range(3 * self._per_file)))
            feeder = threading.Thread(target=self._feed, args=(installation, self._files[3:]), daemon=True)
            feeder.start()
            faults: dict[str, Callable[[], object]] = {
                "driver": chaos.kill_pipeline,
                "crash": lambda: chaos.end_postgres(signal.SIGQUIT),
                "restart": lambda: chaos.end_postgres(signal.SIGINT),
            }
            for number, (moment, what) in enumerate(self._plan):
                wait_until(
                    lambda moment=moment: chaos.count_published() >= moment,  # type: ignore[misc]
                    _PATIENCE,
                    what=f"{moment:,} orders to be published",
                )
                self._report(f"{chaos.count_published():,} published as the {_NAMES[what]}")
                faults[what]()
                if number == len(self._plan) // 2:
                    wait_until(
                        lambda: chaos.count_stored(kept.numbers) == 0, _PATIENCE, what="the first messages deleted"
                    )
                    chaos.replay(kept)
                    self._report("the first files are replayed after their messages were deleted")
            feeder.join(_PATIENCE)
            chaos.wait_for_end(self._orders, timeout=_PATIENCE)
            self._report("all messages are delivered and deleted")
            chaos.replay(kept)
            chaos.verify(self._orders)
            routes = sum(map(len, self._orders.expected.values())) + len(self._orders.lines)
            self._report(f"{len(self._orders.lines):,} orders published once each, {routes:,} routes once each")
            assert up.stop() == 0, up.output()

    def _feed(self, installation: Installation, files: Sequence[tuple[str, bytes]]) -> None:
        """Drop the files, a few at a time, so that each fault happens between two files."""
        folder = self._home / "in"
        for name, content in files:
            wait_until(
                lambda: len(list(folder.rglob("*.jsonl"))) < _MAX_FILES, _PATIENCE, what="fewer files in the folder"
            )
            installation.drop_file(name, content)

    def _report(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._started:6.1f} s  {text}\n")
        sys.stdout.flush()


_NAMES = {
    "driver": "driver is killed",
    "crash": "PostgreSQL crashes",
    "restart": "PostgreSQL restarts",
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
