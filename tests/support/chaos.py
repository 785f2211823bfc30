"""`make chaos`: 100,000 orders while the driver is killed five times and PostgreSQL restarted twice, at random moments.

    python -m tests.support.chaos [--seed N] [--orders N]

Hosts deliver and the cleanup jobs run all the while. Some files come again after their messages were delivered and
cleaned up. Moments are counts of published orders; the seed, which is printed, chooses them.
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

_FILES, _AT_A_TIME = 100, 12
_PATIENCE = 900.0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="chooses the moments")
    parser.add_argument("--orders", type=int, default=100_000, help="how many orders")
    chosen = parser.parse_args(arguments)
    with open_folder() as folder:
        _Chaos(folder, seed=chosen.seed, count=chosen.orders).run()
    return 0


class _Chaos:
    def __init__(self, home: Path, *, seed: int, count: int) -> None:
        self._home = home
        self._started = time.monotonic()
        dice = random.Random(seed)
        moments = sorted(dice.sample(range(count * 3 // 100, count * 93 // 100), 7))
        what = ["driver"] * 5 + ["crash", "restart"]
        dice.shuffle(what)
        self._plan = list(zip(moments, what, strict=True))
        self._orders = Orders(count)
        self._per_file = count // _FILES
        self._files = list(self._orders.files(per_file=self._per_file))
        self._say(f"seed {seed}, {count:,} orders in {len(self._files)} files")
        self._say("at so many published: " + ", ".join(f"{moment:,} {one}" for moment, one in self._plan))

    def run(self) -> None:
        with Installation(self._home) as installation:
            up = installation.start("up", str(installation.write(APPLICATION)), "--master", "local[2]")
            chaos = ChaosInstallation(installation, up)
            kept = chaos.keep_batch(self._files[:3], list(range(3 * self._per_file)))
            feeder = threading.Thread(target=self._feed, args=(installation, self._files[3:]), daemon=True)
            feeder.start()
            acts: dict[str, Callable[[], object]] = {
                "driver": chaos.kill_pipeline,
                "crash": lambda: chaos.end_postgres(signal.SIGQUIT),
                "restart": lambda: chaos.end_postgres(signal.SIGINT),
            }
            for number, (moment, what) in enumerate(self._plan):
                wait_until(
                    lambda moment=moment: chaos.published() >= moment,  # type: ignore[misc]
                    _PATIENCE,
                    what=f"{moment:,} orders to be published",
                )
                self._say(f"{chaos.published():,} published as the {_NAMES[what]}")
                acts[what]()
                if number == len(self._plan) // 2:
                    wait_until(lambda: chaos.stored(kept.numbers) == 0, _PATIENCE, what="the first to be cleaned up")
                    chaos.bring_again(kept)
                    self._say("the first files have come again, after their messages were cleaned up")
            feeder.join(_PATIENCE)
            chaos.wait_for_end(self._orders, timeout=_PATIENCE)
            self._say("everything is delivered and cleaned up")
            chaos.bring_again(kept)
            chaos.verify(self._orders)
            routes = sum(map(len, self._orders.expected.values())) + len(self._orders.lines)
            self._say(f"{len(self._orders.lines):,} orders published once each, {routes:,} routes once each")
            assert up.stop() == 0, up.output()

    def _feed(self, installation: Installation, files: Sequence[tuple[str, bytes]]) -> None:
        """Never many at a time, so that every moment has files before it and behind it."""
        folder = self._home / "in"
        for name, content in files:
            wait_until(lambda: len(list(folder.rglob("*.jsonl"))) < _AT_A_TIME, _PATIENCE, what="room for a file")
            installation.drop_file(name, content)

    def _say(self, what: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._started:6.1f} s  {what}\n")
        sys.stdout.flush()


_NAMES = {
    "driver": "driver is killed",
    "crash": "PostgreSQL crashes",
    "restart": "PostgreSQL restarts",
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
