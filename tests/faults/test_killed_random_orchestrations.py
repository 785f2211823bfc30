"""Hosts are killed while they run random orchestrations. Another process replays each journal with the same results."""

from __future__ import annotations

from pathlib import Path

from tests.support import killed_random_orchestrations
from tests.support.box import Box

#: The programs are the same in each run. ``make fuzz`` tries others.
SEED = 7


def test_random_orchestrations_do_the_same_in_every_process(box: Box, tmp_path: Path) -> None:
    problems = killed_random_orchestrations.run(box, tmp_path, seed=SEED, programs=40, kills=4)
    assert problems == []
