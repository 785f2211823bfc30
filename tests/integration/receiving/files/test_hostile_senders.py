"""A sender with write access to the watched folder cannot make Postroom read another file of its account."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import Unavailable
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.ports.receive_locations import ReceiveLocation
from tests.integration.receiving.files.conftest import MakeClaimer, WatchedLocation
from tests.support.box import Box
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.file_systems import folder_on_another_file_system

Claimed = Callable[[], list[FileClaim]]
ORDER = b'{"region": "EU"}'
SECRET = b'{"region": "the key"}'


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of Postroom's account that no sender may read."""
    path = tmp_path / "secret.json"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


def plant_symlink(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def plant_dangling_symlink(path: Path, secret: Path) -> None:
    path.symlink_to(secret.with_name("not there yet"))


def plant_pipe(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def plant_folder(path: Path, secret: Path) -> None:
    path.mkdir()


def plant_hard_link(path: Path, secret: Path) -> None:
    os.link(secret, path)


PLANT = [plant_symlink, plant_dangling_symlink, plant_pipe, plant_folder, plant_hard_link]


def bodies(box: Box) -> list[bytes]:
    return sorted(box.bodies())


def problems(box: Box) -> dict[str, str]:
    """Return the problems of the quarantined files by name."""
    return {claim.name: claim.problem or "" for claim in box.file_claims() if claim.state == FileClaimState.FAILED}


@pytest.mark.parametrize("plant", PLANT)
def test_anything_that_replaces_a_settled_file_is_quarantined(
    watched: WatchedLocation,
    make_claimer: MakeClaimer,
    box: Box,
    secret: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[Path, Path], None],
) -> None:
    for name in ("a.json", "b.json"):
        (watched.folder / name).write_bytes(ORDER)
    watched.claimer.scan()
    watched.clock.move(3)
    insert = file_claims.insert_file_claims

    def insert_and_replace(*given: Any) -> None:  # between the check and the rename
        insert(*given)
        (watched.folder / "a.json").unlink()
        plant(watched.folder / "a.json", secret)

    with monkeypatch.context() as patched:
        patched.setattr(file_claims, "insert_file_claims", insert_and_replace)
        watched.claimer.scan()
    watched.run()
    assert bodies(box) == [ORDER]
    assert problems(box).keys() == {"a.json"}
    assert "is quarantined as" in problems(box)["a.json"]
    assert any("a.json" in problem for problem in watched.claimer.scan().problems)
    # It is still quarantined after the next start.
    watched.claimer.release()
    watched.run(claimer=make_claimer())
    assert bodies(box) == [ORDER]
    assert problems(box).keys() == {"a.json"}
    assert secret.read_bytes() == SECRET


@pytest.mark.parametrize("plant", [plant_symlink, plant_pipe, plant_folder])
def test_anything_except_a_regular_file_stays_in_the_watched_folder(
    watched: WatchedLocation, box: Box, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    plant(watched.folder / "a.json", secret)
    watched.run()
    assert bodies(box) == []
    assert os.path.lexists(watched.folder / "a.json")


@pytest.mark.parametrize("plant", [plant_symlink, plant_dangling_symlink, plant_pipe, plant_folder])
def test_a_planted_private_folder_is_not_read(
    watched: WatchedLocation, box: Box, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    watched.claimer.scan()
    (watched.folder / ".postroom").rename(watched.folder / "away")
    watched.claimer.private_folder.mkdir(mode=0o700, parents=True)
    (watched.folder / ".postroom").chmod(0o700)
    planted = watched.claimer.private_folder / f"{uuid.uuid4()}~a.json"
    plant(planted, secret)
    watched.run()
    assert bodies(box) == []
    assert box.count("file claims") == 0
    [problem] = watched.claimer.scan().problems
    assert str(planted) in problem


def test_a_symlink_that_replaces_a_claimed_file_is_not_read(watched: WatchedLocation, box: Box, secret: Path) -> None:
    (watched.folder / "a.json").write_bytes(b"x" * len(str(secret)))  # a symbolic link is as long as the path in it
    watched.claim_all()
    [claim] = watched.claimed()
    claim.path.unlink()
    claim.path.symlink_to(secret)
    os.utime(claim.path, ns=(claim.modified_ns, claim.modified_ns), follow_symlinks=False)
    watched.run()
    assert bodies(box) == []
    assert "not a regular file" in problems(box)["a.json"]


def test_a_file_that_replaces_a_claimed_file_with_the_same_size_and_time_is_detected(watched: WatchedLocation) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    other = watched.folder / ".other"
    other.write_bytes(ORDER)
    os.utime(other, ns=(claim.modified_ns, claim.modified_ns))
    other.rename(claim.path)
    assert watched.task.receive([claim]) == []
    assert watched.claimed() == []  # it settles again


def test_a_hard_link_is_quarantined_after_its_settle_time(watched: WatchedLocation, box: Box, secret: Path) -> None:
    os.link(secret, watched.folder / "a.json")
    watched.run(times=3)
    assert (watched.folder / "a.json").exists()  # its sender may be about to remove the other name
    watched.run()
    assert bodies(box) == []
    assert "2 names" in problems(box)["a.json"]


def test_a_file_is_claimed_after_its_sender_removes_the_temporary_name(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / ".temporary").write_bytes(ORDER)
    os.link(watched.folder / ".temporary", watched.folder / "a.json")
    watched.claimer.scan()
    (watched.folder / ".temporary").unlink()
    watched.run(times=3)
    assert bodies(box) == [ORDER]


def test_a_reset_file_may_have_a_second_name_in_the_archive(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    os.link(claim.path, watched.folder / ".archived")
    file_claims.reset_claims(box.connection, [claim.interchange_id])
    watched.run()
    assert bodies(box) == [ORDER]


def location_in(box: Box, folder: Path, **settings: Any) -> ReceiveLocation:
    return add_file_location(box, folder, name="open", pattern="*.json", settle=0, **settings)


def test_a_folder_that_others_can_write_to_is_rejected_unless_it_is_sticky(
    make_claimer: MakeClaimer, box: Box, folder: Path
) -> None:
    claimer = make_claimer(location_in(box, folder))
    (folder / "a.json").write_bytes(ORDER)
    folder.chmod(0o777)
    with pytest.raises(Unavailable) as raised:
        claimer.scan()
    assert str(folder) in raised.value.what
    for advice in ("chmod +t", "private_folder=", "trusted_senders=True"):
        assert advice in str(raised.value)
    assert (folder / "a.json").exists()
    folder.chmod(0o1777)
    assert claimer.scan().claimed == 1


def test_a_private_folder_that_others_can_write_to_is_rejected(
    make_claimer: MakeClaimer, box: Box, folder: Path
) -> None:
    claimer = make_claimer(location_in(box, folder))
    claimer.scan()
    for path in (claimer.private_folder, claimer.private_folder.parent):
        path.chmod(0o777)
        with pytest.raises(Unavailable, match="trusted_senders"):
            claimer.scan()
        path.chmod(0o700)
    assert claimer.scan().active


def test_a_private_folder_that_is_a_symlink_is_rejected(
    make_claimer: MakeClaimer, box: Box, folder: Path, tmp_path: Path
) -> None:
    claimer = make_claimer(location_in(box, folder))
    (tmp_path / "elsewhere").mkdir()
    (folder / ".postroom").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match=r"\.postroom is not a folder"):
        claimer.scan()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_trusted_senders_may_write_to_the_folder_and_use_hard_links(
    make_claimer: MakeClaimer, box: Box, folder: Path, secret: Path
) -> None:
    folder.chmod(0o777)
    location = location_in(box, folder, trusted_senders=True)
    os.link(secret, folder / "a.json")
    (folder / "b.json").symlink_to(secret)
    assert make_claimer(location).scan().claimed == 1
    [claim] = read_numbered_claims(box.connection, location)
    assert (claim.name, claim.inode) == ("a.json", None)


def test_the_private_folder_can_be_outside_a_world_writable_folder(
    make_claimer: MakeClaimer, box: Box, folder: Path, tmp_path: Path
) -> None:
    folder.chmod(0o777)
    location = location_in(box, folder, private_folder=tmp_path / "private" / "files")
    (folder / "a.json").write_bytes(ORDER)
    assert make_claimer(location).scan().claimed == 1
    [claim] = read_numbered_claims(box.connection, location)
    assert claim.path.parent == tmp_path / "private" / "files" / str(location.location_id)
    assert (tmp_path / "private" / "files").stat().st_mode & 0o777 == 0o700
    assert not list(folder.iterdir())


def test_an_external_private_folder_that_others_can_write_to_is_rejected(
    make_claimer: MakeClaimer, box: Box, folder: Path, tmp_path: Path
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    private.chmod(0o777)
    with pytest.raises(Unavailable, match="private folder"):
        make_claimer(location_in(box, folder, private_folder=private)).scan()


def test_a_private_folder_on_another_file_system_is_rejected(
    make_claimer: MakeClaimer, box: Box, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        folder_on_another_file_system(tmp_path, monkeypatch) as private,
        pytest.raises(Unavailable, match="is on another file system"),
    ):
        make_claimer(location_in(box, folder, private_folder=private)).scan()


def test_a_claimed_file_stays_in_its_folder_when_the_private_folder_changes(
    make_claimer: MakeClaimer, box: Box, folder: Path, tmp_path: Path
) -> None:
    location = location_in(box, folder)
    (folder / "a.json").write_bytes(ORDER)
    before = make_claimer(location)
    assert before.scan().claimed == 1
    [claim] = read_numbered_claims(box.connection, location)
    file_claims.reset_claims(box.connection, [claim.interchange_id])
    before.release()
    moved = location.replace_settings(adapter={**location.adapter_json, "private_folder": str(tmp_path / "private")})
    assert make_claimer(moved).scan().claimed == 1
    assert read_numbered_claims(box.connection, location) == [claim]


def test_a_watched_folder_that_is_replaced_between_two_scans_is_checked_again(
    make_claimer: MakeClaimer, box: Box, folder: Path
) -> None:
    claimer = make_claimer(location_in(box, folder))
    claimer.scan()
    (folder / "old.json").write_bytes(ORDER)
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "new.json").write_bytes(ORDER)
    with pytest.raises(Unavailable, match="No files are received"):
        claimer.scan()
    folder.chmod(0o755)
    assert claimer.scan().claimed == 1
    assert (folder.with_name("away") / "old.json").exists()
    shutil.rmtree(folder)
    with pytest.raises(Unavailable, match="is gone"):
        claimer.scan()
