"""While a backup copies the claimed files, no file is claimed or removed, and publishing continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom.messagebox.coordination.file_pause import FilePause
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.served_locations import LastScan
from tests.integration.receiving.files.conftest import MovedClock, WatchedLocation
from tests.support.box import Box

ORDER = b'{"region": "EU"}'
Claimed = Callable[[], list[FileClaim]]


@pytest.fixture
def pause(box: Box) -> Iterator[FilePause]:
    pause = FilePause(box.url)
    yield pause
    pause.close()


def test_no_file_is_claimed_during_a_pause(
    claimer: FileClaimer, clock: MovedClock, folder: Path, box: Box, pause: FilePause
) -> None:
    (folder / "a.json").write_bytes(ORDER)
    claimer.scan()
    pause.acquire()
    clock.move(3)
    scan = claimer.scan()
    assert (scan.active, scan.paused, scan.claimed) == (True, True, 0)
    assert (folder / "a.json").exists()
    assert box.count("file claims") == 0
    pause.release()
    assert claimer.scan().claimed == 1


def test_a_file_that_is_published_during_a_pause_is_removed_after_it(
    watched: WatchedLocation, box: Box, pause: FilePause
) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    pause.acquire()
    watched.task.receive([claim])
    assert box.queued() == {"Everything": 1}
    assert claim.path.exists()
    assert box.file_claims()[0].state == FileClaimState.PUBLISHED
    pause.release()
    watched.clock.move(3)
    watched.claimer.scan()
    assert not claim.path.exists()
    assert box.count("file claims") == 0
    assert box.queued() == {"Everything": 1}


def test_a_run_with_once_waits_for_the_end_of_the_pause(
    watched: WatchedLocation, location: ReceiveLocation, pause: FilePause
) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claimer.scan()
    watched.clock.move(3)
    now = [0.0]
    last_scan = LastScan(location, monotonic=lambda: now[0])
    pause.acquire()
    for _ in range(2):
        assert not last_scan.is_last(watched.claimer.scan(), is_drained=True)
        now[0] += 60.0
    pause.release()
    scan = watched.claimer.scan()
    assert scan.claimed == 1
    assert last_scan.is_last(scan, is_drained=True)
