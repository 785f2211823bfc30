"""A backup contains the database and the files of one moment, and is only there when it is complete."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroom.errors import NotFound, StateError, Unavailable
from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake.file_claims import FileClaimState
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.migrate import is_current
from postroom.operations.backup import Manifest, RestoreReport, create_backup, read_manifest, restore_backup
from postroom.operations.backup import create as create_module
from postroom.operations.backup.manifest import DUMP, MANIFEST, verify_backup
from postroom.operations.backup.programs import dump_database
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.support.box import Box, Region, open_box
from tests.support.contents import Contents
from tests.support.contents.counts import Countable
from tests.support.databases import Databases
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.file_systems import refuse_links_into

ORDER = b'{"region": "EU"}'
RESTORED: tuple[Countable, ...] = (
    "file claims",
    "fragments",
    "hosts",
    "messages",
    "parts",
    "receive locations",
    "subscriptions",
)
RIGHTS = """
SELECT object, grantee::regrole::text, privilege_type
  FROM (SELECT relname::text AS object, relacl AS acl FROM pg_class
         WHERE relnamespace IN ('messagebox'::regnamespace, 'management'::regnamespace)
        UNION ALL
        SELECT oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc
         WHERE pronamespace = 'messagebox'::regnamespace) AS objects, aclexplode(acl)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    return home


@pytest.fixture
def empty(databases: Databases) -> Iterator[str]:
    """Yield the URL of a database without tables."""
    with databases.clone("template0") as url:
        yield url


@pytest.fixture
def location(box: Box, home: Path) -> ReceiveLocation:
    """A receive location whose folder is relative to the home folder."""
    box.add_port("Everything", "exists(Region)")
    return add_file_location(box, Path("in"), archive=Path("archive"))


def claim(box: Box, location: ReceiveLocation, home: Path) -> None:
    with connect(box.url, user=box.host().role_name) as connection:
        claimer = FileClaimer(connection, location, home)
        for _ in range(2):
            claimer.scan()


def receive(box: Box, location: ReceiveLocation, home: Path) -> int:
    login = Login(url=box.url, user=box.host().role_name)
    try:
        claims = read_numbered_claims(box.connection, location)
        task = SparkReceiveTask(location=location, home=home, login=login)
        return len(list(task.receive(claims)))
    finally:
        close_worker(login)


def restore(url: str, home: Path, folder: Path) -> RestoreReport:
    manifest = read_manifest(folder)
    verify_backup(folder, manifest)
    return restore_backup(url, home, folder, manifest)


def test_a_restored_messagebox_has_everything_of_the_backup(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path, empty: str
) -> None:
    messages = [Message.of(b"x" * size, promoted={Region: "EU"}) for size in (10, 3 * FRAGMENT_SIZE)]
    box.agent().publish(messages)
    backup = create_backup(box.url, home, tmp_path / "backup")
    assert (backup.folder, backup.claimed_files) == (tmp_path / "backup", 0)
    restore(empty, home, tmp_path / "backup")
    with open_box(empty) as restored:
        assert is_current(restored.connection)
        assert check(restored.connection) == []
        assert restored.queued() == {"Everything": 2}
        assert {what: restored.count(what) for what in RESTORED} == {what: box.count(what) for what in RESTORED}
        assert set(restored.connection.execute(RIGHTS)) == set(box.connection.execute(RIGHTS))
        restored.agent().publish([Message.of(b"new", promoted={Region: "EU"})])
        assert restored.queued() == {"Everything": 3}


def test_a_restored_messagebox_has_no_counts_of_future_transactions(
    box: Box, home: Path, tmp_path: Path, empty: str
) -> None:
    """A host of the restored MessageBox could wait for the number of such a transaction and lower the count."""
    box.add_port("Audit", "Region == 'EU'")
    box.add_port("Everything", "exists(Region)")
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"})])
    run_all_jobs_once(box.connection)
    box.agent().publish([Message.of(b"y", promoted={Region: "EU"})])
    # One that its own row counts.
    box.agent().publish([Message.of(b"z", promoted={Region: "ASIA"})])
    # The server of the backup had more transactions than this one.
    box.move_transactions_to_future()
    assert box.find_future_transactions() != []
    assert check(box.connection) == []
    create_backup(box.url, home, tmp_path / "backup")
    restore(empty, home, tmp_path / "backup")
    with open_box(empty) as restored:
        assert check(restored.connection) == []
        assert restored.count("messages with one reference") == 1
        assert restored.find_future_transactions() == []
        restored.terminate_all()
        run_all_jobs_once(restored.connection)
        assert (restored.count("messages"), restored.count("parts")) == (0, 0)
        assert check(restored.connection) == []


def test_claimed_files_are_restored_to_another_home_and_received_once(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path, empty: str
) -> None:
    for number in range(3):
        (home / "in" / f"{number}.json").write_bytes(ORDER)
    claim(box, location, home)
    assert create_backup(box.url, home, tmp_path / "backup").claimed_files == 3
    assert receive(box, location, home) == 3

    other = tmp_path / "other"
    assert restore(empty, other, tmp_path / "backup").claimed_files == 3
    with open_box(empty) as restored:
        [there] = read_receive_locations(restored.connection)
        assert receive(restored, there, other) == 3
        assert restored.queued() == {"Everything": 3}
        assert restored.count("file claims") == 0
        assert sorted(path.name for path in (other / "archive").iterdir()) == ["0.json", "1.json", "2.json"]
        assert not list((other / "in" / ".postroom").glob("*/*"))


def test_a_file_that_is_still_in_its_folder_is_used_by_the_restored_claim(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path, empty: str
) -> None:
    """The database was lost, and the folders were not."""
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    create_backup(box.url, home, tmp_path / "backup")
    (home / "in" / "later.json").write_bytes(ORDER)
    claim(box, location, home)
    restore(empty, home, tmp_path / "backup")
    with open_box(empty) as restored:
        # The file that was claimed after the backup has no claim any more. It is recognised by its name.
        claim(restored, location, home)
        assert restored.count("file claims") == 2
        assert receive(restored, location, home) == 2
        assert restored.queued() == {"Everything": 2}


def test_a_claim_without_a_complete_file_is_not_quarantined_by_the_backup(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path
) -> None:
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    box.change_file_claims(state=FileClaimState.CLAIMING, inode=None, number=None)
    create_backup(box.url, home, tmp_path / "backup")
    claim(box, location, home)
    assert receive(box, location, home) == 1


def test_files_are_copied_if_the_file_system_has_no_hard_links(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    refuse_links_into(tmp_path / ".backup.unfinished" / "files" / "claimed" / str(location.location_id), monkeypatch)
    create_backup(box.url, home, tmp_path / "backup")
    verify_backup(tmp_path / "backup", read_manifest(tmp_path / "backup"))


def test_a_backup_does_not_change_with_the_original(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path
) -> None:
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    create_backup(box.url, home, tmp_path / "backup")
    [original] = (home / "in" / ".postroom").glob("*/*a.json")
    original.write_bytes(b"changed")
    verify_backup(tmp_path / "backup", read_manifest(tmp_path / "backup"))
    [saved] = (tmp_path / "backup" / "files").rglob("*a.json")
    assert (saved.read_bytes(), saved.stat().st_nlink) == (ORDER, 1)


def test_checkpoints_archives_and_included_files_are_restored(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path, empty: str
) -> None:
    checkpoint = home / ".postroom" / "streams" / str(uuid.uuid4()) / "checkpoint"
    for name in ("metadata", "offsets/0", "commits/0"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(name)
    (home / "archive").mkdir()
    (home / "archive" / "old.json").write_bytes(ORDER)
    application = home / "app.py"
    application.write_text("app = ...")
    backup = create_backup(box.url, home, tmp_path / "backup", archives=True, include=[application])
    assert (backup.stream_files, backup.archived_files, backup.included_files) == (3, 1, 1)

    (checkpoint / "offsets" / "1").write_text("read after the backup")
    application.write_text("newer")
    report = restore(empty, home, tmp_path / "backup")
    assert [path.name for path in (checkpoint / "offsets").iterdir()] == ["0"]
    [kept] = [path for path in (home / ".postroom" / "streams").iterdir() if path != checkpoint.parent]
    assert (kept / "checkpoint" / "offsets" / "1").exists()
    assert set(report.skipped_files) == {str(application), str(home / "archive" / "old.json")}
    assert application.read_text() == "newer"


def test_a_backup_fails_if_a_claimed_file_is_missing(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path
) -> None:
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    [path] = (home / "in" / ".postroom").glob("*/*a.json")
    path.unlink()
    with pytest.raises(StateError, match=r"1 claimed files are missing"):
        create_backup(box.url, home, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_an_existing_folder_is_not_overwritten(box: Box, home: Path, tmp_path: Path) -> None:
    create_backup(box.url, home, tmp_path / "backup")
    with pytest.raises(StateError, match="already exists"):
        create_backup(box.url, home, tmp_path / "backup")


def test_what_a_killed_backup_has_left_is_removed_by_the_next(box: Box, home: Path, tmp_path: Path) -> None:
    left = tmp_path / ".backup.unfinished" / "files"
    left.mkdir(parents=True)
    create_backup(box.url, home, tmp_path / "backup")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "backup"}


def test_a_failed_dump_leaves_nothing_and_ends_the_pause(
    box: Box, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        create_module, "dump_database", lambda url, _, target: dump_database(url, "no-snapshot", target)
    )
    with pytest.raises(Unavailable, match="pg_dump failed"):
        create_backup(box.url, home, tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert box.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7001") == 0


def test_publishing_delivery_and_jobs_run_during_the_dump(
    box: Box, home: Path, tmp_path: Path, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published and deleted during the dump is not in the backup, and the counts are right."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"before", promoted={Region: "EU"})])

    def dump_later(url: str, snapshot: str, target: Path) -> tuple[int, str]:
        box.agent().publish([Message.of(b"after", promoted={Region: "EU"})])
        box.terminate_all()
        run_all_jobs_once(box.connection)
        return dump_database(url, snapshot, target)

    monkeypatch.setattr(create_module, "dump_database", dump_later)
    create_backup(box.url, home, tmp_path / "backup")
    restore(empty, home, tmp_path / "backup")
    with open_box(empty) as restored:
        assert restored.bodies() == [b"before"]
        assert check(restored.connection) == []


def _remove_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def _change_dump(folder: Path) -> None:
    with (folder / DUMP).open("r+b") as dump:
        dump.seek(100)
        dump.write(b"x")


def _add_unknown_field(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"unknown": 1}))


def _raise_format(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"format": 99}))


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (_remove_manifest, NotFound),
        (_change_dump, StateError),
        (_add_unknown_field, StateError),
        (_raise_format, StateError),
        (lambda folder: (folder / DUMP).unlink(), StateError),
    ],
)
def test_a_damaged_backup_is_refused(
    box: Box, home: Path, tmp_path: Path, empty: str, damage: Callable[[Path], None], error: type[Exception]
) -> None:
    create_backup(box.url, home, tmp_path / "backup")
    damage(tmp_path / "backup")
    with pytest.raises(error):
        restore(empty, home, tmp_path / "backup")


def test_a_backup_is_not_restored_into_a_database_with_tables(box: Box, home: Path, tmp_path: Path, empty: str) -> None:
    create_backup(box.url, home, tmp_path / "backup")
    with pytest.raises(StateError, match="has a MessageBox"):
        restore(box.url, home, tmp_path / "backup")
    with connect(empty) as connection:
        connection.execute("CREATE TABLE public.other (id integer)")
    with pytest.raises(StateError, match="has 1 tables"):
        restore(empty, home, tmp_path / "backup")


def test_a_failed_restore_leaves_the_database_empty_and_can_be_repeated(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path, empty: str
) -> None:
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    create_backup(box.url, home, tmp_path / "backup")
    manifest = read_manifest(tmp_path / "backup")
    [saved] = manifest.files
    wrong = manifest.model_copy(update={"files": (saved.model_copy(update={"interchange_id": "'"}),)})
    with pytest.raises(Unavailable, match="psql failed"):
        restore_backup(empty, tmp_path / "other", tmp_path / "backup", wrong)
    with connect(empty) as connection:
        assert not Contents(connection).exists()
    assert restore(empty, tmp_path / "other", tmp_path / "backup").claimed_files == 1


def test_a_restore_does_not_replace_another_file(
    box: Box, location: ReceiveLocation, home: Path, tmp_path: Path, empty: str
) -> None:
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    create_backup(box.url, home, tmp_path / "backup")
    [path] = (home / "in" / ".postroom").glob("*/*a.json")
    path.write_bytes(b"another")
    with pytest.raises(StateError, match="its content differs"):
        restore(empty, home, tmp_path / "backup")


def test_roles_of_existing_logins_are_restored_and_others_are_reported(
    box: Box, home: Path, tmp_path: Path, empty: str
) -> None:
    role = box.host().role_name
    name = f"operator_{uuid.uuid4().hex[:8]}"
    box.connection.execute(f"CREATE ROLE {name} LOGIN; GRANT {role} TO {name}")
    create_backup(box.url, home, tmp_path / "backup")
    box.connection.execute(f"DROP ROLE {name}")
    assert restore(empty, home, tmp_path / "backup").missing_logins == (name,)


def test_a_backup_is_for_its_owner_only(box: Box, location: ReceiveLocation, home: Path, tmp_path: Path) -> None:
    (home / "in" / "a.json").write_bytes(ORDER)
    claim(box, location, home)
    folder = create_backup(box.url, home, tmp_path / "backup").folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert isinstance(read_manifest(folder), Manifest)
    assert os.access(folder / DUMP, os.R_OK)
