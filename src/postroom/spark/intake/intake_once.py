"""Receive everything that is there, and return: the intake of `postroom pipeline run --once`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from postroom.clock import Clock, system_clock
from postroom.spark.intake.claims import Scan
from postroom.spark.intake.intake import Intake

_LOOK_EVERY, _SHORTEST_LOOK = timedelta(seconds=0.2), 0.02


def receive_all(
    work: Intake,
    publish: Callable[[], object],
    *,
    settle: timedelta,
    stopping: threading.Event,
    clock: Clock = system_clock,
) -> bool:
    """Claim what has settled and call ``publish``, until there is nothing left. A round claims at most as much as one
    scan does. Returns False if another process serves the location."""
    first = True
    while True:
        claimed, scan = _claim_settled(work, settle, stopping, clock)
        if not scan.active:
            return False
        # What an earlier process has left is published in the first round, whether there is anything new or not. Later
        # a round that finds no room ends it: what is there cannot be published now.
        if first or claimed:
            publish()
        if not scan.more or stopping.is_set() or not (first or claimed):
            return True
        first = False


def _claim_settled(work: Intake, settle: timedelta, stopping: threading.Event, clock: Clock) -> tuple[int, Scan]:
    """Scan until everything has had its time to settle. Files that still change are left for the next run."""
    settled_by = clock() + 2 * settle + timedelta(seconds=1)
    claimed = 0
    while True:
        scan = work.scan()
        claimed += scan.claimed
        if not scan.active or not scan.settling or scan.more or stopping.is_set() or clock() > settled_by:
            return claimed, scan
        stopping.wait(max(work.next_look(_LOOK_EVERY).total_seconds(), _SHORTEST_LOOK))
