"""Claim the files of a receive location, each under a new interchange id.

To claim a file is to insert a row into the MessageBox and to rename the file into the private folder of the location:

    row (claiming) ─► rename ─► folders synced ─► status checked again ─► row (claimed, numbered) ─► published
                                                                                                       │
                                                    row deleted ◄─ file removed or archived ◄─ committed ┘

A sender can replace a settled file before the rename: by a symbolic link, a pipe, or a hard link to a file of another
account. So the status is checked again in the private folder, where no sender can replace the file. Anything except a
regular file with one name is quarantined: its claim has failed, and it is not opened.

A small file that comes alone is published without a number, by the process that has claimed it.

A crash between any two steps leaves a state that ``scan`` recognises. A row without a file was never renamed. A file
with an incomplete row settles in the private folder and is claimed then. A file without a row has its interchange id in
its name.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import takewhile
from pathlib import Path

from postroom.clock import Clock, system_clock
from postroom.files.safe_files import make_folder, remove_leftovers
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.file_pause import lock_files
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState, SettledFile, UnfinishedClaim
from postroom.messagebox.intake.location_lock import LocationLock
from postroom.messagebox.storage.receipts import read_progress
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.claimed_files import KEPT_FOLDER, finish_files
from postroom.receiving.files.watched_folder import (
    ClaimFolders,
    FileStatus,
    SettlingFiles,
    format_private_name,
    open_claim_folders,
    parse_interchange_id,
    parse_original_name,
)
from postroom.receiving.numbered_receive_adapter import Scan

_log = logging.getLogger(__name__)

#: Maximum number of files that are claimed and not yet published. Other files stay in the watched folder.
MAX_OUTSTANDING = 5_000

#: Maximum size of a file that is received alone.
_SMALL_FILE = 16_384

_BATCH_SIZE = 500
_RECOVER_EVERY = timedelta(seconds=2)
#: The settle time of a file with several names: its sender may be about to remove a temporary name.
_SEVERAL_NAMES_SETTLE = timedelta(seconds=10)


class FileClaimer:
    """Claims the files of one location while it holds the lock of the location.

    For a disabled location it claims no new files, and finishes the files that are claimed already."""

    def __init__(
        self,
        connection: Connection,
        location: ReceiveLocation,
        home: Path,
        clock: Clock = system_clock,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        max_outstanding: int = MAX_OUTSTANDING,
        makes_folder: bool = True,
        receive_alone: Callable[[FileClaim], bool] | None = None,
    ) -> None:
        """``receive_alone`` receives a small file that comes while no other one waits. It returns False if it did
        not receive the file, so that the stream has to."""
        self._connection = connection
        self._receive_alone = receive_alone
        self._location_id = location.location_id
        definition = location.watched_folder
        assert definition is not None, "only locations over folders claim files"
        self._definition = definition
        self.folder = self._definition.folder(home)
        if makes_folder:
            make_folder(self.folder)
        self.private_folder = self._definition.private_parent(home) / str(location.location_id)
        self._home = home
        self._archive = self._definition.archive_folder(home)
        self._is_ordered = definition.is_ordered
        self._claims_new_files = location.enabled
        self._clock = clock
        self._max_outstanding = max_outstanding
        settle = timedelta(seconds=self._definition.settle)
        self._trusts_senders = self._definition.trusted_senders
        several_names = timedelta() if self._trusts_senders else _SEVERAL_NAMES_SETTLE
        self._arriving = SettlingFiles(settle, monotonic, several_names=several_names)
        self._moved = SettlingFiles(settle, monotonic)  # files that changed while they were moved
        self._lock = LocationLock(connection, location.location_id)
        self._folders: ClaimFolders  # while a scan runs
        self._recovered_at: datetime | None = None
        self._capacity: int | None = None  # how many files could be claimed at the last check, if there were more
        #: What the last recovery and this scan have found, and what is logged already.
        self._recovery_problems: dict[str, None] = {}
        self._problems: dict[str, None] = {}
        self._logged: set[str] = set()

    def scan(self) -> Scan:
        """Scan the folder once: claim the settled files, and repair what a crash has left."""
        if not self._lock.acquire():
            return Scan(active=False)
        with lock_files(self._connection) as is_locked:
            return self._scan() if is_locked else Scan(active=True, paused=True)

    def _scan(self) -> Scan:
        self._problems = {}
        with open_claim_folders(self._definition, self._home, self._location_id) as self._folders:
            if self._recover_if_due():
                self._recovery_problems = self._problems
            self._problems = dict(self._recovery_problems)
            claimed = self._claim_settled() + self._complete_moved()
        for problem in self._problems.keys() - self._logged:
            _log.warning("%s", problem)
        self._logged = set(self._problems)
        return Scan(
            active=True,
            claimed=claimed,
            settling=len(self._arriving) + len(self._moved),
            more=self._capacity is not None,
            problems=tuple(self._problems),
        )

    def next_scan_in(self, longest: timedelta) -> timedelta:
        """Return the time until a scan may find a settled file, at most ``longest``."""
        return min(self._arriving.next_in(longest), self._moved.next_in(longest))

    def release(self) -> None:
        """Let another process claim."""
        self._lock.release()

    # -- claiming ----------------------------------------------------------------------------------------------

    def _claim_settled(self) -> int:
        if not self._claims_new_files or not self._has_capacity():
            return 0
        present = dict(self._list_watched_folder())
        self._arriving.keep_only(present.keys())
        settled = {path for path, status in present.items() if self._arriving.has_settled(path, status)}
        settled = {path for path in settled if self._is_readable(path)}
        if not settled or (self._is_ordered and self._has_unnumbered_files()):
            return 0
        ready = self._select_ready([(path, path.name, status) for path, status in present.items()], settled)
        capacity = self._read_capacity()
        self._capacity = 0 if len(ready) > capacity else None
        ready = ready[:capacity]
        claimed = 0
        for first in range(0, len(ready), _BATCH_SIZE):
            files = {path: present[path] for path in ready[first : first + _BATCH_SIZE]}
            claimed += self._claim(files, is_only_file=len(present) == 1 and capacity == self._max_outstanding)
            if self._is_ordered and len(self._moved):
                break  # a file has changed, and the files after it wait for it
        return claimed

    def _has_capacity(self) -> bool:
        """Return True if it is worth listing the folder. A backlog of many files is not listed if none of them may be
        claimed, nor for a few of them while more are being published."""
        if self._capacity is None:
            return True
        before = self._capacity
        self._capacity = self._read_capacity()
        return self._capacity >= min(_BATCH_SIZE, self._max_outstanding) or 0 < self._capacity == before

    def _read_capacity(self) -> int:
        return max(0, self._max_outstanding - file_claims.count_outstanding(self._connection, self._location_id))

    def _has_unnumbered_files(self) -> bool:
        """Return True if moved files have no number yet, or have lost it. No other file may overtake them."""
        unfinished = file_claims.read_unfinished_claims(self._connection, self._location_id)
        return any(found.state is FileClaimState.CLAIMING for found in unfinished)

    def _select_ready(
        self,
        present: Sequence[tuple[Path, str, FileStatus]],
        settled: Collection[Path],
        first_numbers: Mapping[uuid.UUID, int] | None = None,
    ) -> list[Path]:
        """Return the settled files that may be claimed now, by time or name. For an ordered location, stop at the
        first file that has not settled. Files with ``first_numbers`` come first, in the order of these."""
        by_name = self._definition.order == "name"
        keys: dict[Path, tuple[object, ...]] = {}
        for path, name, status in present:
            first_number = first_numbers.get(parse_interchange_id(path), math.inf) if first_numbers else 0
            keys[path] = (
                (first_number, name, status.modified_ns) if by_name else (first_number, status.modified_ns, name)
            )
        if self._is_ordered:
            return list(takewhile(settled.__contains__, sorted(keys, key=keys.__getitem__)))
        return sorted(settled, key=keys.__getitem__)

    def _list_watched_folder(self) -> Iterator[tuple[Path, FileStatus]]:
        """Yield the files of the watched folder that match, settled or not. Read-only files are ignored (RCV-23)."""
        with os.scandir(self._folders.watched) as entries:
            for entry in entries:
                if self._definition.matches(entry.name):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o222:
                            yield self.folder / entry.name, FileStatus.from_stat(status)

    def _is_readable(self, path: Path) -> bool:
        if os.access(path.name, os.R_OK, dir_fd=self._folders.watched) or not os.path.lexists(path):
            return True
        self._report(f"{path} cannot be read by this account, so it is not received.")
        return False

    def _claim(self, files: dict[Path, FileStatus], *, is_only_file: bool) -> int:
        targets = {}
        for path in files:
            interchange_id = uuid.uuid4()
            targets[path] = (interchange_id, self.private_folder / format_private_name(interchange_id, path.name))
        rows = [(interchange_id, _to_text(path.name), target) for path, (interchange_id, target) in targets.items()]
        file_claims.insert_file_claims(self._connection, self._location_id, rows)
        not_moved = []
        for path, (interchange_id, target) in targets.items():
            self._arriving.drop(path)
            try:
                os.rename(path.name, target.name, src_dir_fd=self._folders.watched, dst_dir_fd=self._folders.private)
            except OSError as error:
                not_moved.append(interchange_id)
                if not isinstance(error, FileNotFoundError):
                    self._report(f"{path} cannot be claimed: {error.strerror or error}.")
        # If a crash of the machine undid a rename, the file would be received twice.
        self._folders.sync()
        if not_moved:
            file_claims.delete_file_claims(self._connection, not_moved)
        if is_only_file and self._receive_lone_file(*rows[0], *files.values()):
            return 1
        return self._complete([(targets[path], status) for path, status in files.items()])

    def _receive_lone_file(self, interchange_id: uuid.UUID, name: str, path: Path, status: FileStatus) -> bool:
        """Receive a moved file without a number. Return False if it has to be completed and numbered.

        It is not tried again after a crash: the file settles in the private folder, and the stream receives it."""
        if self._receive_alone is None or self._is_ordered or len(self._moved) or status.size > _SMALL_FILE:
            return False
        with suppress(FileNotFoundError):
            if self._read_status(path) == status and not self._reason_for_quarantine(interchange_id, status):
                inode = None if self._trusts_senders else status.inode
                if inode is not None:
                    file_claims.store_inode(self._connection, interchange_id, inode)
                size, modified_ns = status.size, status.modified_ns
                return self._receive_alone(
                    FileClaim(
                        interchange_id=interchange_id,
                        name=name,
                        path=path,
                        size=size,
                        modified_ns=modified_ns,
                        inode=inode,
                    )
                )
        return False

    def _complete(self, moved: Sequence[tuple[tuple[uuid.UUID, Path], FileStatus]]) -> int:
        """Number the moved files that have not changed. No sender can replace them any more."""
        settled = []
        some_changed = False
        for (interchange_id, target), status in moved:
            with suppress(FileNotFoundError):
                now = self._read_status(target)
                if problem := self._reason_for_quarantine(interchange_id, now):
                    self._quarantine(interchange_id, target, problem)
                elif now == status and not (self._is_ordered and some_changed):
                    inode = None if self._trusts_senders else now.inode
                    size, modified_ns = now.size, now.modified_ns
                    settled.append(
                        SettledFile(interchange_id=interchange_id, size=size, modified_ns=modified_ns, inode=inode)
                    )
                else:
                    some_changed = True
                    self._moved.watch(target, now)
        if not self._is_ordered:
            file_claims.number_claims(self._connection, settled)
            return len(settled)
        waiting = file_claims.number_claims_in_order(self._connection, self._location_id, settled)
        for (interchange_id, target), status in moved:
            if interchange_id in waiting:
                self._moved.watch(target, status)
        return len(settled) - len(waiting)

    def _reason_for_quarantine(self, interchange_id: uuid.UUID, status: FileStatus) -> str:
        """Return why a file must not be opened, or an empty string."""
        if not status.is_regular:
            return "it is not a regular file"
        # Archiving gives a file a second name, so the names are only counted before the claim is complete.
        if (
            status.links > 1
            and not self._trusts_senders
            and not file_claims.has_inode(self._connection, interchange_id)
        ):
            return f"it has {status.links} names (hard links), and may be a file of another account"
        return ""

    def _quarantine(self, interchange_id: uuid.UUID, path: Path, problem: str) -> None:
        name = parse_original_name(path)
        claim = FileClaim(interchange_id=interchange_id, name=name, path=path, size=-1, modified_ns=-1)
        problem = f"is quarantined as {path}: {problem}."
        file_claims.store_problem(self._connection, claim, FileClaimState.FAILED, problem)
        self._report(f"{name} {problem}")

    def _complete_moved(self) -> int:
        present: dict[Path, FileStatus] = {}
        for path in self._moved.paths:
            try:
                present[path] = self._read_status(path)
            except FileNotFoundError:
                self._moved.drop(path)
        settled = {path for path, status in present.items() if self._moved.has_settled(path, status)}
        first_numbers = (
            file_claims.read_first_numbers(self._connection, self._location_id) if self._is_ordered and settled else {}
        )
        ready = self._select_ready(
            [(path, parse_original_name(path), status) for path, status in present.items()], settled, first_numbers
        )
        for path in ready:
            self._moved.drop(path)
        return self._complete([((parse_interchange_id(path), path), present[path]) for path in ready])

    # -- recovery -----------------------------------------------------------------------------------------------

    def _recover_if_due(self) -> bool:
        """Repair what a crash has left, unless that was done a moment ago."""
        now = self._clock()
        first = self._recovered_at is None
        if self._recovered_at is None or not timedelta() <= now - self._recovered_at < _RECOVER_EVERY:
            # The folder is listed before the rows are read, because a task removes a file first and then its row.
            present = self._list_private_folder()
            if first and self._archive is not None:
                remove_leftovers(self._archive, now=now)
            for found in file_claims.read_unfinished_claims(self._connection, self._location_id):
                self._repair(found, first=first)
            self._adopt(present)
            self._recovered_at = now
            return True
        return False

    def _repair(self, found: UnfinishedClaim, *, first: bool) -> None:
        claim = found.claim
        exists = os.path.lexists(claim.path)
        match found.state:
            case FileClaimState.PUBLISHED if claim.path.parent.name != KEPT_FOLDER:
                self._report(*finish_files(self._connection, [claim], self._archive))
            case FileClaimState.MISSING if not exists and not first:
                self._report(f"{claim.path} is missing, and was not published.")
            case _ if not exists:
                file_claims.delete_file_claims(self._connection, [claim.interchange_id])
            case FileClaimState.CLAIMING:
                self._watch_moved(claim.path)
            case FileClaimState.PUBLISHED:
                kept = f"The changed file is kept as {claim.path}."
                self._report(f"{claim.name} was written to after it was published. {kept}")
            case FileClaimState.FAILED if not first:
                self._report(f"{claim.path} could not be received. It is tried again at the next start.")
            case _:
                file_claims.reset_claims(self._connection, [claim.interchange_id], found.state)
                # Now, and not at the next recovery: a run with --once would have ended by then.
                self._watch_moved(claim.path)

    def _list_private_folder(self) -> dict[uuid.UUID, Path]:
        present = {}
        for name in os.listdir(self._folders.private):  # noqa: PTH208 (pathlib takes no descriptor)
            path = self.private_folder / name
            try:
                present[parse_interchange_id(path)] = path
            except ValueError:
                self._report(f"{path} is not a claimed file. Remove it from the private folder.")
        return present

    def _adopt(self, present: dict[uuid.UUID, Path]) -> None:
        """Claim files without a row again. The database was restored, or a crash of the machine undid a removal."""
        strays = present.keys() - file_claims.find_known_ids(self._connection, list(present))
        progress = read_progress(self._connection, list(strays)) if strays else {}
        for interchange_id in strays:
            path = present[interchange_id]
            with suppress(FileNotFoundError):
                status = self._read_status(path)
                if not status.is_regular:
                    self._report(f"{path} is not a regular file. Remove it from the private folder.")
                    continue
                stray = FileClaim(
                    interchange_id=interchange_id,
                    name=_to_text(parse_original_name(path)),
                    path=path,
                    size=status.size,
                    modified_ns=status.modified_ns,
                    inode=status.inode,
                )
                if progress[interchange_id].done:
                    self._report(*finish_files(self._connection, [stray], self._archive))
                else:
                    file_claims.adopt_file(self._connection, self._location_id, stray)
                    self._watch_moved(path)

    def _watch_moved(self, path: Path) -> None:
        if path not in self._moved:
            with suppress(FileNotFoundError):
                self._moved.watch(path, self._read_status(path))

    def _read_status(self, path: Path) -> FileStatus:
        """Return the status of a claimed file. It may be in another folder if private_folder= has changed since."""
        if path.parent == self.private_folder:
            return FileStatus.from_stat(os.stat(path.name, dir_fd=self._folders.private, follow_symlinks=False))
        return FileStatus.from_stat(path.lstat())

    def _report(self, *problems: str) -> None:
        self._problems |= dict.fromkeys(problems)


def _to_text(name: str) -> str:
    """Return a name as PostgreSQL can store it. Bytes that are not UTF-8 are escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")
