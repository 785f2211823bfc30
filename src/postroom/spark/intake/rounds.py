"""All that is there, taken in and published, in as many rounds as that takes: `postroom pipeline run --once`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from postroom.clock import Clock, system_clock
from postroom.spark.intake.claims import Scan
from postroom.spark.intake.taking_in import TakingIn

_LOOK_EVERY, _SHORTEST_LOOK = timedelta(seconds=0.2), 0.02


def in_rounds(
    work: TakingIn,
    publish: Callable[[], object],
    *,
    settle: timedelta,
    stopping: threading.Event,
    clock: Clock = system_clock,
) -> bool:
    """Takes in what has settled and has it published, again and again while there is more than is taken at once. False
    if another process serves the location."""
    first = True
    while True:
        claimed, scan = _take_in(work, settle, stopping, clock)
        if not scan.active:
            return False
        # What an earlier process has left is published in the first round, whether there is anything new or not. Later
        # a round that finds no room ends it: what is there cannot be published now.
        if first or claimed:
            publish()
        if not scan.more or stopping.is_set() or not (first or claimed):
            return True
        first = False


def _take_in(work: TakingIn, settle: timedelta, stopping: threading.Event, clock: Clock) -> tuple[int, Scan]:
    """Whatever is there has had its time to settle by the end; what still changes then is for the next run."""
    settled_by = clock() + 2 * settle + timedelta(seconds=1)
    claimed = 0
    while True:
        scan = work.scan()
        claimed += scan.claimed
        if not scan.active or not scan.settling or scan.more or stopping.is_set() or clock() > settled_by:
            return claimed, scan
        stopping.wait(max(work.next_look(_LOOK_EVERY).total_seconds(), _SHORTEST_LOOK))
