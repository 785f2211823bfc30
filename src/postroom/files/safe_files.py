"""Files in folders that other programs use at the same time: opened safely, changed atomically and durably.

Changes use a descriptor of the folder. If the folder is moved or replaced while a file is written, the new folder does
not get a part of the work. A file that is opened for reading may have been replaced: symbolic links are not followed.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

CHUNK_SIZE = 1 << 20
#: The error numbers of file systems without hard links.
NO_HARD_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))
_LEFT_OVER_AFTER = timedelta(days=1)
# Hidden, so that neither Postroom's receive locations nor other programs read an unfinished file.
_PREFIX, _SUFFIX = ".postroom-", ".tmp"


def link_file(source: Path, target: Path) -> bool:
    """Give a file another name. Return False if the file systems do not allow it. Raise FileExistsError if the name is
    taken."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EXDEV and error.errno not in NO_HARD_LINKS:
            raise
        return False
    return True


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create the folder with this mode, and its missing parents. They are on disk when this returns."""
    if folder.is_dir():
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode if path == folder else 0o777, exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """Yield a descriptor of the folder. Create the folder if it is missing."""
    make_folder(folder)
    with _open_descriptor(folder) as descriptor:
        yield descriptor


def sync_folder(folder: Path) -> None:
    """Flush the entries of the folder to disk."""
    with _open_descriptor(folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def use_temporary_name(folder: int) -> Iterator[str]:
    """Yield a unique hidden name. A file that still has this name at the end is removed."""
    name = f"{_PREFIX}{uuid.uuid4()}{_SUFFIX}"
    try:
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file in one step: readers see the old content or the new one. It is on disk when this returns."""
    with open_folder(path.parent) as folder, use_temporary_name(folder) as name:
        with os.fdopen(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode, dir_fd=folder), "wb") as writer:
            writer.write(content)
            writer.flush()
            os.fsync(writer.fileno())
        os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


def remove_leftovers(folder: Path, *, now: datetime) -> None:
    """Remove temporary files that a crash left behind: those that were last written more than a day ago."""
    before = (now - _LEFT_OVER_AFTER).timestamp()
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < before:
                path.unlink()


def has_same_content(folder: int, one: str, other: str) -> bool:
    """Return True if two files in the folder have the same bytes. False if one is missing or not a regular file."""
    try:
        with open_regular_file(one, folder=folder) as first, open_regular_file(other, folder=folder) as second:
            while chunk := first.read(CHUNK_SIZE):
                if second.read(CHUNK_SIZE) != chunk:
                    return False
            return not second.read(1)
    except OSError:
        return False


def open_regular_file(path: Path | str, *, inode: int | None = None, folder: int | None = None) -> BinaryIO:
    """Open a file for reading; with ``inode``, only if it is still the file with that inode number.

    ``path`` is taken from the descriptor ``folder`` if there is one. Raise OSError for a symbolic link, a pipe, a
    device, a directory and a file that was replaced. Do not wait for the writer of a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "It is not a regular file", str(path))
        if inode is not None and get_inode(status) != inode:
            raise OSError(errno.ESTALE, "It was replaced by another file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def get_inode(status: os.stat_result) -> int:
    """Return the inode number as a signed 64-bit integer, as PostgreSQL stores it.

    The device number is left out on purpose: it differs between the machines of a cluster that mount the same share,
    and may change when a machine restarts. A rename never leaves its file system.
    """
    return status.st_ino if status.st_ino < 1 << 63 else status.st_ino - (1 << 64)


@contextmanager
def _open_descriptor(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
