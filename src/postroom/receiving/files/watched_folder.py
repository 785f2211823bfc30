"""The watched folder of a receive location, and the private folder that claimed files are moved to.

A file has settled if its size, time and inode have stopped changing. Then it is no longer being written, and can be
claimed.

Both folders are kept open during a scan, so that renaming or replacing one of them cannot redirect the files. A
location does not start if another account could replace its private folder: Spark's readers open the claimed files by
their paths, and would follow a symbolic link to any file that this account can read.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from postroom.adapters import File
from postroom.adapters.file.names import MAX_NAME_BYTES
from postroom.adapters.file.permissions import is_private, is_protected
from postroom.errors import Unavailable
from postroom.files.safe_files import get_inode, make_folder

#: A folder of a location is for this account alone.
_MODE = 0o700
_OPEN = os.O_RDONLY | os.O_DIRECTORY
#: The length of the interchange id, with which the name of a claimed file begins.
ID_LENGTH = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """The status of a file at one moment. ``links`` is the number of its names."""

    size: int
    modified_ns: int
    inode: int
    links: int = 1
    is_regular: bool = True

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileStatus:
        return cls(
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
            inode=get_inode(status),
            links=status.st_nlink,
            is_regular=stat.S_ISREG(status.st_mode),
        )


class SettlingFiles:
    """Files under observation. A file has settled if its status did not change for the time ``settle``. A file with
    several names has to stay unchanged for the time ``several_names``, if that is longer.

    ``monotonic`` measures the time, because the clock may be set forward while a file is being written."""

    def __init__(
        self,
        settle: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        several_names: timedelta = timedelta(),
    ) -> None:
        self._settle = settle
        self._several_names = several_names
        self._monotonic = monotonic
        self._observed: dict[Path, tuple[FileStatus, float]] = {}

    def __len__(self) -> int:
        return len(self._observed)

    def __contains__(self, path: Path) -> bool:
        return path in self._observed

    @property
    def paths(self) -> list[Path]:
        return list(self._observed)

    def has_settled(self, path: Path, status: FileStatus) -> bool:
        """Record the present status of a file. Return True if the file has settled."""
        now = self._monotonic()
        before = self._observed.get(path)
        if before is None or before[0] != status:
            self._observed[path] = (status, now)
            return before is None and not self._wait(status)
        return timedelta(seconds=now - before[1]) >= self._wait(status)

    def watch(self, path: Path, status: FileStatus) -> None:
        """Start to observe a file. It settles at the next call of ``has_settled`` at the earliest, even without a
        settle time."""
        self._observed[path] = (status, self._monotonic())

    def drop(self, path: Path) -> None:
        """Stop observing a file."""
        self._observed.pop(path, None)

    def keep_only(self, paths: Collection[Path]) -> None:
        """Stop observing all files except these."""
        for path in self._observed.keys() - paths:
            del self._observed[path]

    def next_in(self, longest: timedelta) -> timedelta:
        """Return the time until another file may have settled, at most ``longest``."""
        now = self._monotonic()
        waits = (self._wait(status) - timedelta(seconds=now - since) for status, since in self._observed.values())
        return min([longest, *(wait for wait in waits if wait > timedelta())])

    def _wait(self, status: FileStatus) -> timedelta:
        return max(self._settle, self._several_names) if status.links > 1 else self._settle


@dataclass(frozen=True, kw_only=True)
class ClaimFolders:
    """The descriptors of the watched and of the private folder."""

    watched: int
    private: int

    def sync(self) -> None:
        """Return when the renames between the folders are on disk."""
        os.fsync(self.private)
        os.fsync(self.watched)


@contextmanager
def open_claim_folders(definition: File, home: Path, location_id: uuid.UUID) -> Iterator[ClaimFolders]:
    """Open the folders of a location, and make the private folder if it is missing. Raise Unavailable if the watched
    folder is missing, if another account could replace the private folder, unless the location trusts its senders, or
    if a rename cannot move files between them."""
    watched_path, parent_path = definition.folder(home), definition.private_parent(home)
    is_inside = definition.private_folder is None
    with ExitStack() as stack:
        if not watched_path.exists():
            raise Unavailable(
                f"The folder {watched_path} is gone.",
                why="A share may not be mounted. A location that runs does not create its folder again.",
                hint="Mount the share, or create the folder. The location then continues.",
            )
        watched = _close_later(stack, os.open(watched_path, _OPEN))
        if is_inside:
            parent = _close_later(stack, _open_or_make(parent_path, watched))
        else:
            make_folder(parent_path, mode=_MODE)
            parent = _close_later(stack, os.open(parent_path, _OPEN))
        private = _close_later(stack, _open_or_make(parent_path / str(location_id), parent))
        if os.fstat(private).st_dev != os.fstat(watched).st_dev:
            raise Unavailable(
                f"The private folder {parent_path} is on another file system than {watched_path}.",
                why="A file is claimed by a rename, which cannot leave its file system.",
                hint="Set private_folder= to a folder on the file system of the watched folder.",
            )
        if not definition.trusted_senders:
            if is_inside and not (is_protected(watched) and is_private(parent)):
                raise _unsafe_folder(watched_path, "Other accounts can replace the folder .postroom in it.")
            if not is_inside and not is_protected(parent):
                raise _unsafe_folder(
                    watched_path, f"Other accounts can replace the content of its private folder {parent_path}."
                )
            if not is_private(private):
                raise _unsafe_folder(watched_path, f"Other accounts can write to {parent_path / str(location_id)}.")
        yield ClaimFolders(watched=watched, private=private)


def _unsafe_folder(watched: Path, why: str) -> Unavailable:
    return Unavailable(
        f"No files are received from {watched}.",
        why=f"{why} They could make Postroom read any file of its account.",
        hint="Make the account of Postroom its owner and set its sticky bit (chmod +t), set private_folder= to a folder"
        " that only this account can write to, or set trusted_senders=True.",
    )


def _open_or_make(folder: Path, parent: int) -> int:
    """Open a folder in ``parent``, and make it if it is missing. Do not follow a symbolic link."""
    try:
        return os.open(folder.name, _OPEN | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(folder.name, _MODE, dir_fd=parent)
        os.fsync(parent)
        return os.open(folder.name, _OPEN | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise Unavailable(
            f"{folder} is not a folder.",
            why="It is the folder for claimed files. Another account may have put a file or a symbolic link there.",
            hint="Check who has created it, and remove it.",
        ) from error


def _close_later(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def format_private_name(interchange_id: uuid.UUID, name: str) -> str:
    """Return the name in the private folder: the id, by which a file without a row is recognised, and the name."""
    shortened = os.fsencode(name)[: MAX_NAME_BYTES - ID_LENGTH - 1].decode(errors="ignore")
    return f"{interchange_id}~{shortened}"


def parse_interchange_id(path: Path) -> uuid.UUID:
    """Return the interchange id in the name of a claimed file. Raise ValueError if there is none."""
    return uuid.UUID(path.name[:ID_LENGTH])


def parse_original_name(path: Path) -> str:
    """Return the original name of a claimed file, shortened if it is long."""
    return path.name[ID_LENGTH + 1 :]
