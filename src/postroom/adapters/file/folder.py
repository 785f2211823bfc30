"""Atomic and durable changes inside one folder: hidden temporary names, folder descriptors, fsync.

All operations use a descriptor of the folder. If the folder is moved or replaced while a file is written, the new
folder does not get a part of the work.
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

# Hidden, so that neither Postroom's receive locations nor other programs read an unfinished file.
_PREFIX, _SUFFIX = ".postroom-", ".tmp"


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


def remove_leftovers(folder: Path, *, before: datetime) -> None:
    """Remove temporary files that a crash left behind: those that were last written before ``before``."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            if path.lstat().st_mtime < before.timestamp():
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


@contextmanager
def _open_descriptor(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
