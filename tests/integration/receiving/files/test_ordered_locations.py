"""An ordered location receives one file after the other, by name or by time (RCV-25)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.messagebox.intake.file_claims import FileClaim
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.watched_folder import ClaimFolders
from tests.integration.receiving.files.conftest import MakeClaimer, MovedClock, WatchedLocation
from tests.integration.receiving.files.test_file_claimer import scan_until_settled
from tests.support.box import Box, Region
from tests.support.file_location import add_file_location

Claimed = Callable[[], list[FileClaim]]


@pytest.fixture
def location(box: Box, folder: Path) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    return add_file_location(box, folder, pattern="*.json", settle=1.0, order="name")


def drop(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.json").write_text(f'{{"region": "{name}"}}')


def names(found: list[FileClaim]) -> list[str]:
    return [claim.name.removesuffix(".json") for claim in found]


def list_published(box: Box) -> list[str]:
    """Return the regions in the order in which their messages were queued."""
    return [row.context[Region] for row in box.queued_rows()]


def test_files_are_claimed_by_name_and_not_by_time(watched: WatchedLocation) -> None:
    drop(watched.folder, "c", "a", "b")
    os.utime(watched.folder / "c.json", (1, 1))
    assert scan_until_settled(watched.claimer, watched.clock) == 3
    assert names(watched.claimed()) == ["a", "b", "c"]


def test_files_are_claimed_by_time_and_not_by_name(
    box: Box, make_claimer: MakeClaimer, clock: MovedClock, tmp_path: Path
) -> None:
    folder = tmp_path / "by time"
    folder.mkdir()
    by_time = add_file_location(box, folder, name="by time", settle=1.0, order="time")
    drop(folder, "a", "b", "c")
    for name, at in (("a", 30), ("b", 10), ("c", 20)):
        os.utime(folder / f"{name}.json", (at, at))
    assert scan_until_settled(make_claimer(by_time), clock) == 3
    numbered = sorted(box.file_claims(), key=lambda claim: claim.number or 0)
    assert [claim.name for claim in numbered] == ["b.json", "c.json", "a.json"]


def test_a_file_that_has_not_settled_delays_the_files_after_it(watched: WatchedLocation) -> None:
    drop(watched.folder, "a", "c")
    watched.claimer.scan()
    watched.clock.move(1)
    drop(watched.folder, "b")
    assert watched.claimer.scan().claimed == 1
    assert names(watched.claimed()) == ["a"]
    watched.clock.move(1)
    assert watched.claimer.scan().claimed == 2
    assert names(watched.claimed()) == ["a", "b", "c"]


def test_a_file_that_changes_during_the_claim_delays_the_files_after_it(
    watched: WatchedLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(watched.folder, "a", "b", "c")
    with (watched.folder / "b.json").open("ab") as writer:
        sync = ClaimFolders.sync

        def write_and_sync(folders: ClaimFolders) -> None:
            writer.write(b" ")
            writer.flush()
            sync(folders)

        monkeypatch.setattr(ClaimFolders, "sync", write_and_sync)
        assert scan_until_settled(watched.claimer, watched.clock) == 1
        monkeypatch.undo()
    assert names(watched.claimed()) == ["a"]
    drop(watched.folder, "d")
    watched.claim_all()
    watched.claimer.scan()
    assert names(watched.claimed()) == ["a", "b", "c", "d"]


def test_interchanges_are_published_in_order_each_in_its_own_transaction(watched: WatchedLocation, box: Box) -> None:
    drop(watched.folder, *"edcba")
    scan_until_settled(watched.claimer, watched.clock)
    assert [interchange.published for interchange in watched.receive()] == [1] * 5
    assert list_published(box) == list("abcde")
    assert len({message.transaction for message in box.messages()}) == 5


def test_a_file_that_changed_after_the_claim_is_received_before_the_files_after_it(
    watched: WatchedLocation, box: Box
) -> None:
    drop(watched.folder, *"abcd")
    scan_until_settled(watched.claimer, watched.clock)
    claims = watched.claimed()
    claims[1].path.write_text('{"region": "b, changed"}')
    assert len(watched.task.receive(claims[:3])) == 1
    # The fourth file was not in this batch, but it waits, too.
    assert watched.claimed() == []
    drop(watched.folder, "aa")
    for _ in range(3):
        watched.clock.move(2)
        watched.claimer.scan()
    assert names(watched.claimed()) == ["b", "c", "d", "aa"]
    watched.receive()
    assert list_published(box) == ["a", "b, changed", "c", "d", "aa"]


def test_a_repeated_task_publishes_nothing_twice_and_keeps_the_order(watched: WatchedLocation, box: Box) -> None:
    drop(watched.folder, *"abc")
    scan_until_settled(watched.claimer, watched.clock)
    claims = watched.claimed()
    watched.task.receive(claims[:2])
    watched.task.receive(claims)
    assert list_published(box) == list("abc")
    assert box.count("file claims") == 0


def test_an_invalid_file_is_suspended_not_resumable_and_the_next_file_is_published(
    watched: WatchedLocation, box: Box
) -> None:
    drop(watched.folder, "a", "c")
    (watched.folder / "b.json").write_text("{broken")
    scan_until_settled(watched.claimer, watched.clock)
    watched.receive()
    assert list_published(box) == ["a", "c"]
    assert box.suspended() == [("PIPELINE", False)]
