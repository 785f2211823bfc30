"""Receive everything that is there, and return: the intake of `postroom pipeline run --once`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from postroom.receiving.files.file_claimer import Scan
from postroom.receiving.intake import Intake

_SCAN_INTERVAL, _MIN_WAIT_SECONDS = timedelta(seconds=0.2), 0.02


def receive_all(
    intake: Intake,
    publish: Callable[[], object],
    *,
    settle: timedelta,
    stopping: threading.Event,
    monotonic: Callable[[], float] = time.monotonic,
) -> bool:
    """Claim the settled files and call ``publish``, until nothing is left. A round claims at most as much as one scan
    does. Return False if another process serves the location."""
    first = True
    while True:
        claimed, scan = _claim_settled(intake, settle, stopping, monotonic)
        if not scan.active:
            return False
        # The first round publishes what an earlier process has left, even if nothing was claimed. A later round that
        # can claim nothing is the last: the outstanding files cannot be published now.
        if first or claimed:
            publish()
        if not scan.more or stopping.is_set() or not (first or claimed):
            return True
        first = False


def _claim_settled(
    intake: Intake, settle: timedelta, stopping: threading.Event, monotonic: Callable[[], float]
) -> tuple[int, Scan]:
    """Scan until every file has had time to settle. Files that still change are left for the next run."""
    deadline = monotonic() + 2 * settle.total_seconds() + 1
    claimed = 0
    while True:
        scan = intake.scan()
        claimed += scan.claimed
        # A paused scan has found nothing. The pause ends with the backup's copy of the files.
        is_done = not scan.paused and (not scan.settling or scan.more or monotonic() > deadline)
        if not scan.active or is_done or stopping.is_set():
            return claimed, scan
        stopping.wait(max(intake.next_scan_in(_SCAN_INTERVAL).total_seconds(), _MIN_WAIT_SECONDS))
