"""A file location claims settled files, complete files, and with one claimer at a time (RCV-23)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.messagebox.intake.location_lock import LOCATION_LOCK
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.files.watched_folder import ClaimFolders
from tests.integration.receiving.files.conftest import MakeClaimer, MovedClock
from tests.support.box import Box
from tests.support.file_location import add_file_location
from tests.support.waiting import wait_until

Claimed = Callable[[], list[FileClaim]]


def scan_until_settled(claimer: FileClaimer, clock: MovedClock) -> int:
    """Scan twice, with the settle time in between."""
    claimer.scan()
    clock.move(1)
    return claimer.scan().claimed


def test_a_settled_file_is_claimed_with_its_name_size_and_time(
    claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed
) -> None:
    (folder / "a.json").write_bytes(b"{}")
    status = (folder / "a.json").stat()
    assert claimer.scan().claimed == 0
    clock.move(0.99)
    assert claimer.scan().settling == 1
    assert (folder / "a.json").exists()
    clock.move(0.01)
    assert claimer.scan().claimed == 1
    [claim] = claimed()
    assert (claim.name, claim.size, claim.modified_ns) == ("a.json", 2, status.st_mtime_ns)
    assert claim.path.read_bytes() == b"{}"
    assert claim.path.parent == claimer.private_folder
    assert not (folder / "a.json").exists()


def test_a_file_that_is_being_written_is_not_claimed(
    claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed
) -> None:
    with (folder / "slow.json").open("wb") as file:
        for _ in range(5):
            file.write(b"part ")
            file.flush()
            assert claimer.scan().claimed == 0
            clock.move(0.9)
        assert (folder / "slow.json").exists()
    clock.move(0.1)
    assert claimer.scan().claimed == 1
    assert [claim.size for claim in claimed()] == [25]


def test_a_replaced_file_settles_again_even_if_size_and_time_are_the_same(
    claimer: FileClaimer, clock: MovedClock, folder: Path
) -> None:
    (folder / "a.json").write_bytes(b"old")
    status = (folder / "a.json").stat()
    claimer.scan()
    clock.move(1)
    (folder / ".new").write_bytes(b"new")
    os.utime(folder / ".new", ns=(status.st_atime_ns, status.st_mtime_ns))
    (folder / ".new").rename(folder / "a.json")
    assert claimer.scan().claimed == 0
    clock.move(1)
    assert claimer.scan().claimed == 1


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_step_of_the_clock_does_not_change_when_a_file_settles(
    claimer: FileClaimer, clock: MovedClock, folder: Path, seconds: float
) -> None:
    (folder / "a.json").write_bytes(b"{}")
    claimer.scan()
    clock.step(seconds)
    assert claimer.scan().claimed == 0
    clock.move(1)
    assert claimer.scan().claimed == 1


def test_without_a_settle_time_a_file_is_claimed_by_the_first_scan(
    make_claimer: MakeClaimer, box: Box, folder: Path
) -> None:
    location = add_file_location(box, folder / "at once", name="at once", settle=0)
    (folder / "at once").mkdir()
    (folder / "at once" / "moved in whole").write_bytes(b"{}")
    assert make_claimer(location).scan().claimed == 1


def test_files_that_do_not_match_are_not_claimed(claimer: FileClaimer, clock: MovedClock, folder: Path) -> None:
    (folder / ".hidden.json").write_bytes(b"{}")
    (folder / "other.xml").write_bytes(b"<a/>")
    (folder / "folder.json").mkdir()
    (folder / "target").write_bytes(b"{}")
    (folder / "link.json").symlink_to(folder / "target")
    (folder / "read-only.json").write_bytes(b"{}")
    (folder / "read-only.json").chmod(0o444)
    before = set(folder.iterdir())
    assert scan_until_settled(claimer, clock) == 0
    assert set(folder.iterdir()) - {folder / ".postroom"} == before


def test_an_unreadable_file_is_reported_and_not_claimed(
    claimer: FileClaimer, clock: MovedClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "secret.json").write_bytes(b"{}")
    monkeypatch.setattr(os, "access", lambda path, mode, dir_fd: False)  # root may read everything
    scan_until_settled(claimer, clock)
    assert "secret.json cannot be read" in claimer.scan().problems[0]
    assert (folder / "secret.json").exists()


@pytest.mark.parametrize(
    "name", [b"caf\xe9.json", b"x" * 250 + b".json", "Bestellung €.json".encode(), b"a\nb'%s.json"]
)
def test_files_with_unusual_names_are_claimed(
    claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed, name: bytes
) -> None:
    Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(b"{}")  # noqa: PTH118
    assert scan_until_settled(claimer, clock) == 1
    [claim] = claimed()
    assert claim.name == name.decode(errors="backslashreplace")
    assert claim.path.read_bytes() == b"{}"


def test_files_of_the_same_name_are_claimed_one_after_the_other(
    claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed
) -> None:
    for number in range(5):
        (folder / "daily.json").write_text(f'"{number}"')
        assert scan_until_settled(claimer, clock) == 1
    found = claimed()
    assert [claim.path.read_text() for claim in found] == ['"0"', '"1"', '"2"', '"3"', '"4"']
    assert {claim.name for claim in found} == {"daily.json"}
    assert len({claim.interchange_id for claim in found}) == 5


def test_files_are_numbered_by_age(claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed) -> None:
    for name, time in (("b.json", 3), ("c.json", 1), ("a.json", 2)):
        (folder / name).write_bytes(b"{}")
        os.utime(folder / name, (time, time))
    scan_until_settled(claimer, clock)
    assert [claim.name for claim in claimed()] == ["c.json", "a.json", "b.json"]


def test_a_file_that_is_written_to_during_the_claim_settles_again(
    claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = (folder / "a.json").open("ab")
    sender.write(b"first ")
    sender.flush()
    claimer.scan()
    clock.move(1)

    def append(folders: ClaimFolders) -> None:  # between the rename and the second check
        sender.write(b"second ")
        sender.flush()

    with monkeypatch.context() as patched:
        patched.setattr(ClaimFolders, "sync", append)
        assert claimer.scan().claimed == 0
    assert claimed() == []
    clock.move(0.5)
    sender.write(b"third")
    sender.close()
    assert claimer.scan().claimed == 0
    clock.move(0.99)
    assert claimer.scan().claimed == 0
    clock.move(0.01)
    assert claimer.scan().claimed == 1
    assert [claim.path.read_bytes()[: claim.size] for claim in claimed()] == [b"first second third"]


def test_a_file_that_is_replaced_during_the_claim_is_received_completely(
    claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.json").write_bytes(b"the old one")
    claimer.scan()
    clock.move(1)
    insert = file_claims.insert_file_claims

    def replace(connection: Connection, location_id: uuid.UUID, files: list[tuple[uuid.UUID, str, Path]]) -> None:
        insert(connection, location_id, files)  # between the first check and the rename
        (folder / ".new").write_bytes(b"the new one, longer")
        (folder / ".new").rename(folder / "a.json")

    with monkeypatch.context() as patched:
        patched.setattr(file_claims, "insert_file_claims", replace)
        assert claimer.scan().claimed == 0
    clock.move(1)
    assert claimer.scan().claimed == 1
    assert [(claim.size, claim.path.read_bytes()) for claim in claimed()] == [(19, b"the new one, longer")]


def test_a_file_that_vanishes_during_the_claim_leaves_no_row(
    claimer: FileClaimer, clock: MovedClock, folder: Path, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone.json", "stays.json"):
        (folder / name).write_bytes(b"{}")
    claimer.scan()
    clock.move(1)
    insert = file_claims.insert_file_claims

    def remove(connection: Connection, location_id: uuid.UUID, files: list[tuple[uuid.UUID, str, Path]]) -> None:
        insert(connection, location_id, files)
        (folder / "gone.json").unlink()

    monkeypatch.setattr(file_claims, "insert_file_claims", remove)
    assert claimer.scan().claimed == 1
    assert [claim.name for claim in box.file_claims()] == ["stays.json"]


def test_files_are_claimed_after_a_folder_that_vanished_is_back(
    claimer: FileClaimer, clock: MovedClock, folder: Path, claimed: Claimed
) -> None:
    """For example a network share that is not mounted for a while."""
    (folder / "first.json").write_bytes(b"{}")
    assert scan_until_settled(claimer, clock) == 1
    (folder / "second.json").write_bytes(b"{}")
    away = folder.rename(folder.with_name("away"))
    clock.move(3_600)
    with pytest.raises(Unavailable, match="is gone"):
        claimer.scan()
    assert not folder.exists()
    away.rename(folder)
    clock.move(3_600)
    scan_until_settled(claimer, clock)
    assert sorted((claim.name, claim.path.read_bytes()) for claim in claimed()) == [
        ("first.json", b"{}"),
        ("second.json", b"{}"),
    ]


def test_the_number_of_outstanding_files_is_limited(
    make_claimer: MakeClaimer, clock: MovedClock, folder: Path, box: Box
) -> None:
    for number in range(7):
        (folder / f"{number}.json").write_bytes(b"{}")
    claimer = make_claimer(max_outstanding=3)
    assert scan_until_settled(claimer, clock) == 3
    assert claimer.scan().claimed == 0
    box.delete_file_claim(box.file_claims()[0].interchange_id)
    assert claimer.scan().claimed == 0  # it waits whether more files are published
    assert claimer.scan().claimed == 1
    assert len(list(folder.glob("*.json"))) == 3


def test_only_one_claimer_at_a_time_is_active(make_claimer: MakeClaimer, clock: MovedClock, folder: Path) -> None:
    first, second = make_claimer(), make_claimer()
    assert first.scan().active
    assert not second.scan().active
    (folder / "a.json").write_bytes(b"{}")
    first.scan()
    first.release()
    assert second.scan().active
    assert not first.scan().active


def test_another_claimer_takes_over_when_a_session_ends(
    make_claimer: MakeClaimer, box: Box, location: ReceiveLocation
) -> None:
    first, second = make_claimer(), make_claimer()
    assert first.scan().active
    box.connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE classid = %s", (LOCATION_LOCK,))
    assert wait_until(lambda: second.scan().active, what="the second claimer to be active")


def test_a_claimer_that_has_lost_its_lock_claims_nothing(
    make_claimer: MakeClaimer, claimer: FileClaimer, clock: MovedClock, folder: Path
) -> None:
    (folder / "a.json").write_bytes(b"{}")
    claimer.scan()
    clock.move(1)
    claimer._connection.execute("SELECT pg_advisory_unlock_all()")  # as behind a pooler in transaction mode
    with pytest.raises(Unavailable, match="lock"):
        claimer.scan()
    assert (folder / "a.json").exists()
