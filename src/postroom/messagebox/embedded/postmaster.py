"""PostgreSQL's main process: find it, end its orphaned children, and end it together with its starter."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, kw_only=True)
class Postmaster:
    """A running PostgreSQL, as its file postmaster.pid describes it."""

    pid: int
    socket_folder: Path
    status: str  # starting, ready or stopping

    @property
    def is_ready(self) -> bool:
        return self.status == "ready"


def find_postmaster(pgdata: Path) -> Postmaster | None:
    """Return the server that runs on `pgdata`, or None. A postmaster.pid that a crash has left is ignored.

    Its process id may belong to another process, so the process must be PostgreSQL and must work in `pgdata`.
    """
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdigit() or not _serves(int(lines[0]), pgdata):
        return None
    # PostgreSQL writes the file line by line while it starts: the socket is the fifth, the status the eighth.
    return Postmaster(
        pid=int(lines[0]),
        socket_folder=Path(lines[4]) if len(lines) > 4 else pgdata,
        status=lines[7].strip() if len(lines) > 7 else "starting",
    )


def end_orphans(pgdata: Path) -> None:
    """End the children of a killed postmaster, because a new one does not start while they run.

    The children notice the death, but a busy one only after its statement. Ending them loses nothing: committed changes
    are on disk, and recovery undoes the others.
    """
    for sign in (signal.SIGQUIT, signal.SIGKILL):
        orphans = [process.pid for process in psutil.process_iter() if _serves(process.pid, pgdata)]
        for orphan in orphans:
            with suppress(ProcessLookupError):
                os.kill(orphan, sign)
        for orphan in orphans:
            wait_for_end(orphan, pgdata, timeout=5)
    (pgdata / "postmaster.pid").unlink(missing_ok=True)


def wait_for_end(pid: int, pgdata: Path, timeout: float) -> bool:
    """Wait until the process no longer serves `pgdata`. Return False after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while _serves(pid, pgdata):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Guard:
    """Shuts a server down when the process that started it ends for any reason.

    A shell waits for the end of a pipe whose other end only this process has open. The kernel's parent-death signal is
    not suitable: it depends on the thread that started the child, not on the process.
    """

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r released || kill -INT "$1"', "sh", str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def release(self) -> None:
        """Stop guarding: the server may outlive this process, or has already ended."""
        self._shell.communicate(b"released\n")


def _serves(pid: int, pgdata: Path) -> bool:
    try:
        process = psutil.Process(pid)
        if process.name() != "postgres" or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.cwd()).samefile(pgdata)
    except psutil.AccessDenied:
        return False  # another user's, so it cannot be the one that this user started
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
