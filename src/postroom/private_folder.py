"""A short folder that belongs to one user alone.

Sockets need one, because the address of a unix socket has room for about a hundred bytes, and so do files that are
executed or trusted later: nobody else may be able to put something else in their place.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from postroom.errors import Unavailable

# Not tempfile.gettempdir(): TMPDIR may be long, or closed to the account that PostgreSQL runs as. It is also where
# PostgreSQL itself puts its socket by default.
PARENT = Path("/tmp")


def private_folder(name: str, *, uid: int | None = None, gid: int = -1) -> Path:
    """The folder of that name of the user `uid` (the present one by default), made with mode 0700 if it is not there.

    >>> private_folder("java")          # /tmp/postroom-1000/java
    """
    owner = os.geteuid() if uid is None else uid
    home = PARENT / f"postroom-{owner}"
    folder = home / name
    while True:
        _make(home, owner, gid)
        try:
            _make(folder, owner, gid)
        except FileNotFoundError:
            continue  # another process found the home empty and removed it between the two steps
        return folder


def remove_private_folder(folder: Path) -> None:
    """Take away an empty private folder, and the user's home of them with the last one."""
    with suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def _make(folder: Path, owner: int, gid: int) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        if owner != os.geteuid():
            os.chown(folder, owner, gid, follow_symlinks=False)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise Unavailable(
            f"The folder {folder} cannot be used.",
            why="It has to be a folder of this user that nobody else can enter, and it is not.",
            hint=f"Remove {folder}, or find out who made it.",
        )
