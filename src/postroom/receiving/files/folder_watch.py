"""Reports new files in a folder at once, by inotify of Linux.

The kernel reports files that a program of this machine has closed or moved there. It does not report files of other
machines on a network share. Scans find these, and all files on other systems.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from pathlib import Path

_CLOSE_WRITE, _MOVED_TO = 0x008, 0x080
_BUFFER_SIZE = 1 << 16


class FolderWatch:
    """Waits for files in one folder, between its creation and ``close``."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = _open_watch(folder)

    def wait(self, seconds: float) -> bool:
        """Wait until a file was put into the folder since the last call. Return False after ``seconds``."""
        if self._descriptor < 0:
            time.sleep(seconds)
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        has_event = bool(poll.poll(seconds * 1000))
        if has_event:
            os.read(self._descriptor, _BUFFER_SIZE)
        return has_event

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def _open_watch(folder: Path) -> int:
    """Return the descriptor of a watch, or -1 if there is none: not on Linux, or too many in this account."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "inotify_init1"):
        return -1
    descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(folder), _CLOSE_WRITE | _MOVED_TO) < 0:
        os.close(descriptor)
        return -1
    return descriptor
