"""Open files that somebody else may have replaced: never through a symbolic link, and regular files only."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular_file(path: Path | str, *, inode: int | None = None, folder: int | None = None) -> BinaryIO:
    """Open a file for reading; with ``inode``, only if it is still the file with that inode number.

    ``path`` is taken from the descriptor ``folder`` if there is one. Raises OSError for a symbolic link, a pipe, a
    device, a directory and a file that was replaced. Does not wait for the writer of a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "It is not a regular file", str(path))
        if inode is not None and inode_of(status) != inode:
            raise OSError(errno.ESTALE, "It was replaced by another file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def inode_of(status: os.stat_result) -> int:
    """Return the inode number as a signed 64-bit integer, as PostgreSQL stores it.

    The device number is left out on purpose: it differs between the machines of a cluster that mount the same share,
    and may change when a machine restarts. A rename never leaves its file system.
    """
    return status.st_ino if status.st_ino < 1 << 63 else status.st_ino - (1 << 64)
