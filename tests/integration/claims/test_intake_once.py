"""What was claimed is published, whatever becomes of its location; and --once leaves nothing (ORS-07, ORS-08)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from postroom import Schedule
from postroom.clock import system_clock
from postroom.messagebox.configuration import ReceiveLocation, receive_locations
from postroom.operations.ports import receive_locations as locations
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim, ClaimState
from postroom.spark.intake.intake import location_to_serve
from postroom.spark.intake.intake_once import receive_all
from postroom.spark.receive.task import ReceiveTask
from tests.integration.claims.conftest import MakeClaimer, MovedClock
from tests.support.box import Box

Claimed = Callable[[], list[Claim]]
ORDER = b'{"region": "EU"}'


def put(folder: Path, count: int) -> None:
    for number in range(count):
        (folder / f"{number}.json").write_bytes(ORDER)


@pytest.fixture
def now(location: ReceiveLocation) -> ReceiveLocation:
    """The location, without a time to settle."""
    return replace(location, adapter_json={**location.adapter_json, "settle": 0})


def test_all_that_is_there_is_taken_in_however_much_it_is(
    box: Box, folder: Path, now: ReceiveLocation, make_claimer: MakeClaimer, task: ReceiveTask, claimed: Claimed
) -> None:
    put(folder, 12)
    claimer = make_claimer(now, most_outstanding=5)
    rounds: list[int] = []

    def publish() -> None:
        rounds.append(len(task.receive(claimed())))

    assert receive_all(claimer, publish, settle=timedelta(), stopping=threading.Event())
    assert rounds == [5, 5, 2]
    assert box.queued() == {"Everything": 12}
    assert not list(folder.glob("*.json"))


def test_what_another_process_has_left_is_published_first(
    box: Box, folder: Path, now: ReceiveLocation, make_claimer: MakeClaimer, task: ReceiveTask, claimed: Claimed
) -> None:
    put(folder, 7)
    killed = make_claimer(now, most_outstanding=5)
    assert killed.scan().claimed == 5
    killed.release()
    claimer = make_claimer(now, most_outstanding=5)
    assert receive_all(claimer, lambda: task.receive(claimed()), settle=timedelta(), stopping=threading.Event())
    assert box.queued() == {"Everything": 7}


def test_what_was_put_aside_is_tried_again_by_the_next_run_and_what_was_taken_away_forgotten(
    box: Box, folder: Path, now: ReceiveLocation, make_claimer: MakeClaimer, task: ReceiveTask, claimed: Claimed
) -> None:
    put(folder, 3)
    first = make_claimer(now)
    assert first.scan().claimed == 3
    for claim in claimed():
        claims.hold(box.connection, claim, ClaimState.FAILED, "It is broken.")
    next(first.private_folder.iterdir()).unlink()
    first.release()
    again = make_claimer(now)
    assert receive_all(again, lambda: task.receive(claimed()), settle=timedelta(), stopping=threading.Event())
    assert box.queued() == {"Everything": 2}
    assert box.one("SELECT count(*) FROM file_claims") == 0


def test_what_cannot_be_published_does_not_keep_it_from_ending(
    box: Box, folder: Path, now: ReceiveLocation, make_claimer: MakeClaimer
) -> None:
    put(folder, 7)
    rounds: list[None] = []
    claimer = make_claimer(now, most_outstanding=5)
    assert receive_all(claimer, lambda: rounds.append(None), settle=timedelta(), stopping=threading.Event())
    assert len(rounds) == 1
    assert not receive_all(make_claimer(now), rounds.clear, settle=timedelta(), stopping=threading.Event())
    assert rounds, "another process serves the location"


def test_a_backlog_is_not_listed_in_vain(
    box: Box,
    folder: Path,
    now: ReceiveLocation,
    make_claimer: MakeClaimer,
    task: ReceiveTask,
    claimed: Claimed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(folder, 5)
    claimer = make_claimer(now, most_outstanding=3)
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
    assert folder not in listed, "for one file it is not worth it, while others are being published"
    assert claimer.scan().claimed == 1, "but if it stays at that, it is taken"
    task.receive(claimed())
    last = claimer.scan()
    assert (last.claimed, last.more) == (1, False)


def test_claimed_files_of_a_disabled_location_are_published_and_no_others_claimed(
    box: Box,
    folder: Path,
    now: ReceiveLocation,
    make_claimer: MakeClaimer,
    task: ReceiveTask,
    claimed: Claimed,
    clock: MovedClock,
) -> None:
    """After a drain that took too long, or a restart while it is disabled."""
    put(folder, 1)
    first = make_claimer(now)
    assert first.scan().claimed == 1
    first.release()
    (folder / "late.json").write_bytes(ORDER)
    # Another process died while it moved a second file.
    moving = first.private_folder / "7e0ec1a5-7c6b-4c1b-9f0e-000000000001~moving.json"
    moving.write_bytes(ORDER)

    locations.disable(box.connection, "drop")
    served = _served(box)
    assert served is not None
    assert not served.enabled
    claimer = make_claimer(served)
    for _ in range(2):
        claimer.scan()
        clock.move(2)
    assert claimer.scan().more is False
    assert len(task.receive(claimed())) == 2
    assert box.queued() == {"Everything": 2}
    assert (folder / "late.json").exists()
    assert _served(box) is None


def test_so_are_those_of_a_location_outside_its_schedule(
    box: Box, folder: Path, now: ReceiveLocation, make_claimer: MakeClaimer
) -> None:
    put(folder, 1)
    assert make_claimer(now).scan().claimed == 1
    locations.schedule(box.connection, "drop", Schedule(stop="2000-12-31"))
    served = _served(box)
    assert served is not None
    assert not served.enabled
    box.connection.execute("UPDATE file_claims SET state = 5, problem = 'it cannot be read'")
    assert _served(box) is None, "what was put aside is tried again when the location is"
    locations.schedule(box.connection, "drop", None)
    served = _served(box)
    assert served is not None
    assert served.enabled


def _served(box: Box) -> ReceiveLocation | None:
    [location] = receive_locations(box.connection)
    return location_to_serve(box.connection, location, system_clock())
