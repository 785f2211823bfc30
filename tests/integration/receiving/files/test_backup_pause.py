"""While a backup copies the claimed files, no file is claimed or removed, and publishing continues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.messagebox.coordination.file_pause import FilePause
from postroom.messagebox.streams.file_claims import FileClaim, FileClaimState
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.intake import receive_all
from postroom.receiving.numbered_receive_adapter import Scan
from tests.integration.receiving.files.conftest import MovedClock, WatchedLocation
from tests.support.box import Box
from tests.support.waiting import wait_until

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


def test_a_run_with_once_waits_for_the_end_of_the_pause(watched: WatchedLocation, box: Box, pause: FilePause) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claimer.scan()
    watched.clock.move(3)
    pause.acquire()
    paused_scans = []
    scan = watched.claimer.scan

    def count_scans() -> Scan:
        result = scan()
        paused_scans.append(result.paused)
        return result

    with ThreadPoolExecutor() as threads:
        run = threads.submit(
            receive_all,
            count_scans,
            lambda: watched.receive(),
            next_scan_in=watched.claimer.next_scan_in,
            settle=timedelta(),
            stopping=threading.Event(),
        )
        wait_until(lambda: sum(paused_scans) >= 2, what="paused scans")
        pause.release()
        assert run.result()
    assert box.queued() == {"Everything": 1}
