"""A folder with a short path that only one user can access.

Unix sockets need a short path: an address has about a hundred bytes. Files that are executed or trusted later need a
folder in which no other user can replace them.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from postroom.errors import Unavailable

# Not tempfile.gettempdir(): TMPDIR may be long, or not accessible to the account that PostgreSQL runs as. /tmp is also
# PostgreSQL's own default for its socket.
PARENT = Path("/tmp")


def private_folder(name: str, *, uid: int | None = None, gid: int = -1) -> Path:
    """Return the private folder of that name of the user `uid`, by default the current one. Create it with mode 0700.

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
            continue  # another process removed the empty parent between the two steps
        return folder


def remove_private_folder(folder: Path) -> None:
    """Remove an empty private folder. Removing the user's last one also removes its parent."""
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
            why="It must be a folder that belongs to this user and that no other user can access.",
            hint=f"Remove {folder}, or find out who created it.",
        )
