"""Work inside one folder that is either wholly done or not seen: hidden names, descriptors, syncs.

Everything goes through a descriptor of the folder, so that a folder that is moved away or replaced while a file is
being written cannot get half of the work.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from postroom.message import CHUNK_SIZE
from postroom.regular_files import open_regular_file

# Hidden, so that neither our own receive locations nor anybody else's take it for a file that is there.
_PREFIX, _SUFFIX = ".postroom-", ".tmp"


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Make the folder, with this mode, and those above it where they are missing. They are on disk when this
    returns."""
    if folder.is_dir():
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode if path == folder else 0o777, exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """A descriptor of the folder, which is made if it is missing."""
    make_folder(folder)
    with _descriptor(folder) as descriptor:
        yield descriptor


def sync_folder(folder: Path) -> None:
    """Return when the names in the folder are on disk."""
    with _descriptor(folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def temporary_name(folder: int) -> Iterator[str]:
    """A hidden name that nobody else uses; what still has it at the end is removed."""
    name = f"{_PREFIX}{uuid.uuid4()}{_SUFFIX}"
    try:
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def remove_left_over(folder: Path, *, before: datetime) -> None:
    """Remove temporary files that a crash left behind: those that nobody has written to since ``before``."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < before.timestamp():
                path.unlink()


def same_content(folder: int, one: str, other: str) -> bool:
    """Whether two files in the folder are equal to the byte; false if either is gone or is not a plain file."""
    try:
        with open_regular_file(one, folder=folder) as first, open_regular_file(other, folder=folder) as second:
            while chunk := first.read(CHUNK_SIZE):
                if second.read(CHUNK_SIZE) != chunk:
                    return False
            return not second.read(1)
    except OSError:
        return False


@contextmanager
def _descriptor(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
