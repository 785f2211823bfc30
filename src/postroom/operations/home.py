"""The home folder of a running application: made if it is missing, and held by one `up` at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.errors import StateError


@contextmanager
def held_home(home: Path) -> Iterator[None]:
    """The folder, held by this process; StateError if another one has it, or it cannot be used.

    The kernel gives the lock back when the process ends, however it ends."""
    path = home / ".postroom" / "up.pid"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise StateError(
            f"The home folder {home} cannot be used.",
            why=f"{error.strerror or error}: {error.filename}.",
            hint="Choose another --home, or run this as the user whom that folder belongs to.",
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StateError(
                f"{home} is up already, as process {file.read().strip() or 'unknown'}.",
                why="One 'postroom up' runs everything in a home; a second one would only stand by.",
                hint="End that one first. To change what runs in it: postroom apply APP",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
