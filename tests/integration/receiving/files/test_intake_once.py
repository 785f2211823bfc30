"""Claimed files are published even if their location is disabled, and --once leaves nothing (ORS-07, ORS-08)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom import Schedule
from postroom.clock import system_clock
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.operations.ports import receive_locations as locations
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.numbered_receive_adapter import Scan
from postroom.receiving.served_locations import LastScan, is_drained, select_location_to_serve
from postroom.spark.receive.task import SparkReceiveTask
from tests.integration.receiving.files.conftest import MakeClaimer, WatchedLocation
from tests.support.box import Box

Claimed = Callable[[], list[FileClaim]]
ORDER = b'{"region": "EU"}'


def put(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"{number}.json").write_bytes(ORDER)


def receive_settled(
    connection: Connection, location: ReceiveLocation, claimer: FileClaimer, publish: Callable[[], object]
) -> None:
    """Publish after each scan, until a single run has claimed everything."""
    now = [0.0]
    last_scan = LastScan(location, monotonic=lambda: now[0])
    is_last = False
    while not is_last:
        was_drained = is_drained(connection, location)
        is_last = last_scan.is_last(claimer.scan(), is_drained=was_drained)
        publish()
        now[0] += 0.1


@pytest.fixture
def unsettled(location: ReceiveLocation) -> ReceiveLocation:
    """Return the location without a settle time."""
    return location.replace_settings(adapter={**location.adapter_json, "settle": 0})


@pytest.fixture
def receive_in_rounds(
    box: Box, unsettled: ReceiveLocation, make_claimer: MakeClaimer, task: SparkReceiveTask, claimed: Claimed
) -> Callable[[], list[int]]:
    """Receive all files, at most five at once, and return how many each round has received."""

    def receive() -> list[int]:
        rounds: list[int] = []
        claimer = make_claimer(unsettled, max_outstanding=5)

        def publish() -> None:
            rounds.append(len(task.receive(claimed())))

        receive_settled(box.connection, unsettled, claimer, publish)
        return rounds

    return receive


def test_all_files_are_received_in_several_rounds(
    box: Box, folder: Path, receive_in_rounds: Callable[[], list[int]]
) -> None:
    put(folder, 12)
    assert receive_in_rounds() == [5, 5, 2]
    assert box.queued() == {"Everything": 12}
    assert not list(folder.glob("*.json"))


def test_files_that_another_process_has_claimed_are_published_first(
    box: Box,
    folder: Path,
    unsettled: ReceiveLocation,
    make_claimer: MakeClaimer,
    receive_in_rounds: Callable[[], list[int]],
) -> None:
    put(folder, 7)
    killed = make_claimer(unsettled, max_outstanding=5)
    assert killed.scan().claimed == 5
    killed.release()
    assert sum(receive_in_rounds()) == 7
    assert box.queued() == {"Everything": 7}


def test_the_next_run_retries_quarantined_files_and_deletes_claims_of_missing_files(
    box: Box,
    folder: Path,
    unsettled: ReceiveLocation,
    make_claimer: MakeClaimer,
    task: SparkReceiveTask,
    claimed: Claimed,
) -> None:
    put(folder, 3)
    first = make_claimer(unsettled)
    assert first.scan().claimed == 3
    for claim in claimed():
        file_claims.store_problem(box.connection, claim, FileClaimState.FAILED, "It is broken.")
    next(first.private_folder.iterdir()).unlink()
    first.release()
    again = make_claimer(unsettled)
    receive_settled(box.connection, unsettled, again, lambda: task.receive(claimed()))
    assert box.queued() == {"Everything": 2}
    assert box.count("file claims") == 0


@pytest.mark.parametrize("rest", [Scan(active=True, settling=1), Scan(active=True, more=True)])
def test_it_leaves_files_that_do_not_settle_or_cannot_be_claimed(unsettled: ReceiveLocation, rest: Scan) -> None:
    now = [0.0]
    last_scan = LastScan(unsettled, monotonic=lambda: now[0])
    assert not last_scan.is_last(rest, is_drained=True)
    now[0] = 2.0
    assert last_scan.is_last(rest, is_drained=True)


def test_it_waits_while_more_can_be_claimed_later(unsettled: ReceiveLocation) -> None:
    now = [0.0]
    last_scan = LastScan(unsettled, monotonic=lambda: now[0])
    paused, full = Scan(active=True, paused=True), Scan(active=True, more=True)
    for scan, is_empty in ((paused, True), (full, False), (Scan(active=True, more=True, claimed=1), True)):
        assert not last_scan.is_last(scan, is_drained=is_empty)
        now[0] += 2.0
    assert last_scan.is_last(Scan(active=True, claimed=1), is_drained=True)


def test_a_backlog_is_not_listed_without_capacity(
    box: Box,
    folder: Path,
    unsettled: ReceiveLocation,
    make_claimer: MakeClaimer,
    task: SparkReceiveTask,
    claimed: Claimed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(folder, 5)
    claimer = make_claimer(unsettled, max_outstanding=3)
    assert claimer.scan().claimed == 3
    listed: list[object] = []
    scandir = os.scandir

    def counted(path: str | Path) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    full = claimer.scan()
    assert (full.claimed, full.more) == (0, True)
    assert folder not in listed
    task.receive(claimed()[:1])
    claimer.scan()
    assert folder not in listed, "the folder is not listed for one file while others are being published"
    assert claimer.scan().claimed == 1, "the file is claimed if no others are published"
    task.receive(claimed())
    last = claimer.scan()
    assert (last.claimed, last.more) == (1, False)


def test_claimed_files_of_a_disabled_location_are_published_and_no_others_are_claimed(
    watched: WatchedLocation, box: Box, unsettled: ReceiveLocation, make_claimer: MakeClaimer
) -> None:
    """This happens after a drain that took too long, or a restart while the location is disabled."""
    put(watched.folder, 1)
    first = make_claimer(unsettled)
    assert first.scan().claimed == 1
    first.release()
    (watched.folder / "late.json").write_bytes(ORDER)
    # Another process died while it moved a second file.
    moving = first.private_folder / "7e0ec1a5-7c6b-4c1b-9f0e-000000000001~moving.json"
    moving.write_bytes(ORDER)

    locations.disable(box.connection, "drop")
    served = _location_to_serve(box)
    assert served is not None
    assert not served.enabled
    claimer = make_claimer(served)
    for _ in range(2):
        claimer.scan()
        watched.clock.move(2)
    assert claimer.scan().more is False
    assert len(watched.receive()) == 2
    assert box.queued() == {"Everything": 2}
    assert (watched.folder / "late.json").exists()
    assert _location_to_serve(box) is None


def test_claimed_files_of_a_location_outside_its_schedule_are_published(
    box: Box, folder: Path, unsettled: ReceiveLocation, make_claimer: MakeClaimer
) -> None:
    put(folder, 1)
    assert make_claimer(unsettled).scan().claimed == 1
    locations.set_schedule(box.connection, "drop", Schedule(stop="2000-12-31"))
    served = _location_to_serve(box)
    assert served is not None
    assert not served.enabled
    box.change_file_claims(state=FileClaimState.FAILED, problem="it cannot be read")
    assert _location_to_serve(box) is None, "a quarantined file is retried when the location is started"
    locations.set_schedule(box.connection, "drop", None)
    served = _location_to_serve(box)
    assert served is not None
    assert served.enabled


def _location_to_serve(box: Box) -> ReceiveLocation | None:
    [location] = read_receive_locations(box.connection)
    return select_location_to_serve(box.connection, location, system_clock())
