"""After a kill -9 between any two steps of a claim, every file is published once and removed (PUB-14)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.messagebox.connection import Login, connect
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.integration.receiving.files.conftest import MovedClock, WatchedLocation
from tests.integration.receiving.files.interrupted_claimer import COPY_POINTS, POINTS, main
from tests.support.box import Box
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.file_systems import refuse_links_into
from tests.support.interrupted_process import run_until_killed
from tests.support.waiting import wait_until

FILES = 4


def order(number: int) -> bytes:
    return b'{"region": "EU", "number": %d}' % number


def run_until_done(box: Box, location: ReceiveLocation, home: Path, folder: Path) -> None:
    """Scan and receive, as a restarted pipeline does, until nothing is left."""
    clock = MovedClock()
    login = Login(url=box.url, user=box.host().role_name)
    task = SparkReceiveTask(location=location, home=home, login=login)
    with connect(box.url, user=login.user) as connection:
        claimer = FileClaimer(connection, location, home, clock, monotonic=clock.monotonic)

        def is_done() -> bool:
            clock.move(3)
            if claimer.scan().active:
                task.receive(read_numbered_claims(connection, location))
            return not box.count("file claims") and not any(path.is_file() for path in folder.rglob("*"))

        try:
            wait_until(is_done, what="an empty folder and an empty table")
        finally:
            close_worker(login)


@pytest.mark.parametrize("point", [point for point in POINTS if "archive" not in point])
def test_every_file_is_published_once_after_a_kill(point: str, box: Box, tmp_path: Path, folder: Path) -> None:
    box.add_port("Everything", "exists(Region)")
    location = add_file_location(box, folder, settle=0)
    for number in range(FILES):
        (folder / f"{number}.json").write_bytes(order(number))
    run_until_killed(main, box.url, box.host().role_name, location.name, str(tmp_path), point)
    run_until_done(box, location, tmp_path, folder)
    bodies = box.bodies()
    assert sorted(bodies) == [order(number) for number in range(FILES)]
    assert box.queued() == {"Everything": FILES}
    assert box.suspended() == []


ARCHIVE_POINTS = [point for point in POINTS if "archive" in point]


@pytest.mark.parametrize(
    ("point", "is_foreign"),
    [
        *((point, False) for point in ARCHIVE_POINTS if point not in COPY_POINTS),
        *((point, True) for point in ARCHIVE_POINTS),
    ],
)
def test_every_file_is_archived_once_after_a_kill(
    point: str, is_foreign: bool, box: Box, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive has each complete original once, also if it is on another file system."""
    box.add_port("Everything", "exists(Region)")
    archive = tmp_path / "archive"
    location = add_file_location(box, folder, settle=0, archive=archive)
    for number in range(FILES):
        (folder / f"{number}.json").write_bytes(order(number))
    run_until_killed(
        main,
        box.url,
        box.host().role_name,
        location.name,
        str(tmp_path),
        point,
        str(archive) if is_foreign else "",
    )
    if is_foreign:
        refuse_links_into(archive, monkeypatch)
    run_until_done(box, location, tmp_path, folder)
    assert box.queued() == {"Everything": FILES}
    assert {path.name: path.read_bytes() for path in archive.iterdir() if path.suffix != ".tmp"} == {
        f"{number}.json": order(number) for number in range(FILES)
    }


def test_a_file_without_a_row_is_published_under_its_own_id(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / "a.json").write_bytes(order(1))
    watched.claim_all()
    [before] = watched.claimed()
    box.delete_all("file claims")  # a database that was restored
    watched.clock.move(3)
    assert watched.claimer.scan().settling == 1
    watched.clock.move(3)
    assert watched.claimer.scan().claimed == 1
    assert watched.claimed() == [before]
    watched.receive()
    assert box.queued() == {"Everything": 1}


def test_a_published_file_that_a_crash_restores_is_not_published_again(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / "a.json").write_bytes(order(1))
    watched.claim_all()
    [claim] = watched.claimed()
    watched.task.receive([claim])
    assert not claim.path.exists()
    claim.path.write_bytes(order(1))  # a crash of the machine undid its removal
    watched.clock.move(3)
    watched.claimer.scan()
    assert not claim.path.exists()
    assert box.count("file claims") == 0
    assert box.queued() == {"Everything": 1}


def test_an_unknown_file_in_the_private_folder_is_reported(claimer: FileClaimer, clock: MovedClock) -> None:
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
    run_until_done(box, location, tmp_path, folder)
    assert list(archive.iterdir()) == [young]
