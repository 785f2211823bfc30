"""Back up a running MessageBox.

    pause ─► checkpoints of streams ─► snapshot ─► claimed files ─► resume ─► archives ─► dump ─► manifest ─► rename

During the pause no file is claimed or removed and no batch of a stream starts. Publishing and delivery continue. The
checkpoints are copied before the snapshot. So a batch may be in the database and not in the checkpoint: it is repeated,
and its receipt is found. The opposite would skip a batch. A backup gets its name when it is complete.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from postroom.clock import Clock, system_clock
from postroom.errors import StateError
from postroom.files.safe_files import sync_folder
from postroom.messagebox.configuration.applications import list_applications
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.file_pause import FilePause
from postroom.messagebox.intake.file_claims import FileClaimState
from postroom.messagebox.maintenance.backup import (
    begin_backup,
    export_snapshot,
    get_messagebox_id,
    read_claimed_paths,
    read_role_members,
)
from postroom.messagebox.storage.receipts import read_progress
from postroom.operations.backup.manifest import DUMP, FORMAT, Manifest, Report, SavedRole, write_manifest
from postroom.operations.backup.programs import dump_database
from postroom.operations.backup.saved_files import FileCollection
from postroom.ports.receive_locations import read_receive_locations

#: The files of claims in these states must exist. In other states they may be removed already.
_STATES_WITH_FILES = (FileClaimState.CLAIMED, FileClaimState.FAILED)


@dataclass(frozen=True, kw_only=True)
class BackupReport:
    """A finished backup. ``paused_seconds`` is how long no file was claimed."""

    folder: Path
    created_at: datetime
    claimed_files: int
    stream_files: int
    archived_files: int
    included_files: int
    bytes: int
    paused_seconds: float


def create_backup(
    url: str,
    home: Path,
    folder: Path,
    *,
    archives: bool = False,
    include: Sequence[Path] = (),
    report: Report = lambda _: None,
    clock: Clock = system_clock,
) -> BackupReport:
    """Back up the MessageBox at ``url`` and its files to the new folder ``folder``."""
    folder, home = folder.absolute(), home.absolute()
    with _unfinished_folder(folder) as unfinished:
        files = FileCollection(folder=unfinished, home=home)
        with _open_snapshot(url) as connection:
            paused_seconds = _collect_during_pause(url, connection, files, home, report)
            if archives:
                _collect_archives(connection, files, home, report)
            for path in include:
                _collect_included(files, path.absolute())
            created_at = clock()
            report("Dumping the database")
            size, sha256 = dump_database(url, export_snapshot(connection), unfinished / DUMP)
            manifest = Manifest(
                format=FORMAT,
                postroom=version("postroom"),
                created_at=created_at,
                messagebox_id=get_messagebox_id(connection),
                home=str(home),
                applications=tuple(application.name for application in list_applications(connection)),
                dump_size=size,
                dump_sha256=sha256,
                roles=tuple(SavedRole(**role._asdict()) for role in read_role_members(connection)),
                files=tuple(files.finish()),
            )
        write_manifest(unfinished, manifest)
        unfinished.rename(folder)
        sync_folder(folder.parent)
    return BackupReport(
        folder=folder,
        created_at=created_at,
        claimed_files=manifest.count("claimed"),
        stream_files=manifest.count("streams"),
        archived_files=manifest.count("archives"),
        included_files=manifest.count("included"),
        bytes=size + sum(file.size for file in manifest.files),
        paused_seconds=round(paused_seconds, 3),
    )


@contextmanager
def _open_snapshot(url: str) -> Iterator[Connection]:
    with connect(url, application_name="postroom backup") as connection, connection.transaction():
        begin_backup(connection)
        yield connection


def _collect_during_pause(url: str, connection: Connection, files: FileCollection, home: Path, report: Report) -> float:
    """Collect the files that must match the database. Return the duration of the pause in seconds."""
    with closing(FilePause(url)) as pause:
        report("Waiting for processes that move files")
        pause.acquire()
        started = time.monotonic()
        files.add_tree("streams", "", home / ".postroom" / "streams")
        export_snapshot(connection)
        count = _collect_claimed(connection, files)
        pause.release()
        seconds = time.monotonic() - started
    report(f"Collected {count} claimed files. No file was claimed for {seconds:.1f} s")
    return seconds


def _collect_claimed(connection: Connection, files: FileCollection) -> int:
    count = 0
    missing: list[tuple[uuid.UUID, str]] = []
    for claim in read_claimed_paths(connection):
        path = Path(claim.path)
        try:
            files.add(
                "claimed",
                f"{claim.location_id}/{path.name}",
                path,
                inode=claim.inode,
                interchange_id=claim.interchange_id,
                # A file with two names would be quarantined before its claim is complete.
                may_link=claim.inode is not None,
            )
            count += 1
        except FileNotFoundError:
            if claim.state in _STATES_WITH_FILES:
                missing.append((claim.interchange_id, claim.path))
    progress = read_progress(connection, [interchange_id for interchange_id, _ in missing]) if missing else {}
    lost = [text for interchange_id, text in missing if not progress[interchange_id].done]
    if lost:
        raise StateError(
            f"{len(lost)} claimed files are missing, for example {lost[0]}.",
            why="Their messages are not published yet, so a backup without them is not complete.",
            hint="Run the backup where the watched folders of all receive locations are mounted.",
        )
    return count


def _collect_archives(connection: Connection, files: FileCollection, home: Path, report: Report) -> None:
    for location in read_receive_locations(connection):
        watched = location.watched_folder
        archive = None if watched is None else watched.archive_folder(home)
        if archive is not None and archive.exists():
            report(f"Copying the archive of {location.name}")
            files.add_tree("archives", str(location.location_id), archive)


def _collect_included(files: FileCollection, path: Path) -> None:
    name = str(path.relative_to(path.anchor))
    if path.is_dir():
        files.add_tree("included", name, path)
    else:
        files.add("included", name, path)


@contextmanager
def _unfinished_folder(folder: Path) -> Iterator[Path]:
    """Create the folder of an unfinished backup, and remove it after an error. Remove that of a killed backup first."""
    if folder.exists():
        raise StateError(f"{folder} already exists.", hint="Give a folder that does not exist. A backup creates it.")
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if unfinished.exists():
        with _lock_folder(unfinished):
            shutil.rmtree(unfinished)
    unfinished.mkdir(mode=0o700)
    with _lock_folder(unfinished):
        try:
            yield unfinished
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder of an unfinished backup. The kernel releases the lock of a killed process."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StateError(
            f"Another process is writing the same backup to {folder}.", hint="Give another folder."
        ) from None
    finally:
        os.close(lock)
