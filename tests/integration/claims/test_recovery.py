"""Killed with -9 between any two steps of a claim: started again, every file is published once and is gone (PUB-14)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import connect
from postroom.spark.executor import drop_executor
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim
from postroom.spark.intake.claims import Claimer
from postroom.spark.login import Login
from postroom.spark.receive.sources import ClaimedFiles
from postroom.spark.receive.task import ReceiveTask
from tests.integration.claims.conftest import MovedClock
from tests.integration.claims.dies import COPY_POINTS, POINTS, main
from tests.support.box import Box
from tests.support.dying import run_and_die
from tests.support.file_location import add_file_location
from tests.support.file_systems import refuse_links_into
from tests.support.waiting import wait_until

FILES = 4


def order(number: int) -> bytes:
    return b'{"region": "EU", "number": %d}' % number


def run_to_the_end(box: Box, location: ReceiveLocation, home: Path, folder: Path) -> None:
    """What a restarted pipeline does, until nothing is left to do."""
    clock = MovedClock()
    login = Login(url=box.url, user=box.host().role_name)
    task = ReceiveTask(source=ClaimedFiles(location=location, home=home), login=login)
    with connect(box.url, user=login.user) as connection:
        claimer = Claimer(connection, location, home, clock)

        def is_done() -> bool:
            clock.move(3)
            if claimer.scan().active:
                task.receive(claims.between(connection, location.location_id, 0, 1 << 60))
            return not box.count("file_claims") and not any(path.is_file() for path in folder.rglob("*"))

        try:
            wait_until(is_done, what="a folder and a table with nothing in them")
        finally:
            drop_executor(login)


@pytest.mark.parametrize("point", [point for point in POINTS if "archive" not in point])
def test_killed(point: str, box: Box, tmp_path: Path, folder: Path) -> None:
    box.add_port("Everything", "exists(Region)")
    location = add_file_location(box, folder, settle=0)
    for number in range(FILES):
        (folder / f"{number}.json").write_bytes(order(number))
    run_and_die(main, box.url, box.host().role_name, location.name, str(tmp_path), point)
    run_to_the_end(box, location, tmp_path, folder)
    bodies = [body for (body,) in box.connection.execute("SELECT body FROM parts")]
    assert sorted(bodies) == [order(number) for number in range(FILES)]
    assert box.queued() == {"Everything": FILES}
    assert box.suspended() == []


ARCHIVE_POINTS = [point for point in POINTS if "archive" in point]


@pytest.mark.parametrize(
    ("point", "elsewhere"),
    [
        *((point, False) for point in ARCHIVE_POINTS if point not in COPY_POINTS),
        *((point, True) for point in ARCHIVE_POINTS),
    ],
)
def test_killed_while_archiving(
    point: str, elsewhere: bool, box: Box, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive has each original once, complete, also if it is on another file system."""
    box.add_port("Everything", "exists(Region)")
    archive = tmp_path / "archive"
    location = add_file_location(box, folder, settle=0, archive=archive)
    for number in range(FILES):
        (folder / f"{number}.json").write_bytes(order(number))
    run_and_die(
        main, box.url, box.host().role_name, location.name, str(tmp_path), point, str(archive) if elsewhere else ""
    )
    if elsewhere:
        refuse_links_into(archive, monkeypatch)
    run_to_the_end(box, location, tmp_path, folder)
    assert box.queued() == {"Everything": FILES}
    assert {path.name: path.read_bytes() for path in archive.iterdir() if path.suffix != ".tmp"} == {
        f"{number}.json": order(number) for number in range(FILES)
    }


def test_a_file_whose_row_is_gone_is_published_under_its_own_id(
    claimer: Claimer,
    task: ReceiveTask,
    clock: MovedClock,
    folder: Path,
    box: Box,
    claimed: Callable[[], list[Claim]],
) -> None:
    (folder / "a.json").write_bytes(order(1))
    claimer.scan()
    clock.move(1)
    claimer.scan()
    [before] = claimed()
    box.connection.execute("DELETE FROM file_claims")  # a database that was set back
    clock.move(3)
    assert claimer.scan().settling == 1
    clock.move(3)
    assert claimer.scan().claimed == 1
    assert claimed() == [before]
    task.receive(claimed())
    assert box.queued() == {"Everything": 1}


def test_a_file_that_comes_back_after_it_was_published_is_not_published_again(
    claimer: Claimer,
    task: ReceiveTask,
    clock: MovedClock,
    folder: Path,
    box: Box,
    claimed: Callable[[], list[Claim]],
) -> None:
    (folder / "a.json").write_bytes(order(1))
    claimer.scan()
    clock.move(1)
    claimer.scan()
    [claim] = claimed()
    task.receive([claim])
    assert not claim.path.exists()
    claim.path.write_bytes(order(1))  # a crash of the machine undid its removal
    clock.move(3)
    claimer.scan()
    assert not claim.path.exists()
    assert box.count("file_claims") == 0
    assert box.queued() == {"Everything": 1}


def test_what_does_not_belong_into_the_private_folder_is_reported(claimer: Claimer, clock: MovedClock) -> None:
    claimer.scan()
    (claimer.private_folder / "notes.txt").write_text("mine")
    clock.move(3)
    [problem] = claimer.scan().problems
    assert "notes.txt" in problem
    assert (claimer.private_folder / "notes.txt").exists()


def test_temporary_files_of_a_crash_are_removed_from_the_archive_when_they_are_old(
    box: Box, tmp_path: Path, folder: Path
) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    location = add_file_location(box, folder, settle=0, archive=archive)
    old, young = archive / ".postroom-old.tmp", archive / ".postroom-young.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    run_to_the_end(box, location, tmp_path, folder)
    assert list(archive.iterdir()) == [young]
