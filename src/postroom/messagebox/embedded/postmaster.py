"""The process that is PostgreSQL: whether it lives, and what to do about what it leaves behind."""

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
    def ready(self) -> bool:
        return self.status == "ready"


def find_postmaster(pgdata: Path) -> Postmaster | None:
    """The server that runs on `pgdata`, or None; a postmaster.pid that a crash left behind does not count.

    Its process id may belong to any other process by now, so the process must be PostgreSQL and must work in `pgdata`.
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
    """End what a killed postmaster left running, because a new one refuses to start beside it.

    The children notice the death by themselves, but a busy one only after its statement. Ending them loses nothing:
    what they had committed is on disk, and what they had not is undone by recovery.
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
    """Wait until the process no longer serves `pgdata`; False if it still does after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while _serves(pid, pgdata):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Guard:
    """Shuts a server down when the process that started it is gone, in whatever way it went.

    A shell waits for the end of a pipe whose other end only this process holds. Not the kernel's parent-death signal:
    that one follows the thread that started the child, not the process.
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
        """The server may outlive this process from now on, or is gone already."""
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
