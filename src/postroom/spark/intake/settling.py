"""Detect when a file is no longer being written: its size, time and inode have stopped changing."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from postroom.clock import Clock
from postroom.safe_files import inode_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """The status of a file at one moment. ``links`` is the number of its names."""

    size: int
    modified_ns: int
    inode: int
    links: int = 1
    is_regular: bool = True

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileStatus:
        return cls(
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
            inode=inode_of(status),
            links=status.st_nlink,
            is_regular=stat.S_ISREG(status.st_mode),
        )


class SettlingFiles:
    """Files under observation. A file has settled if its status did not change for the time ``settle``. A file with
    several names has to stay unchanged for the time ``several_names``, if that is longer."""

    def __init__(self, settle: timedelta, clock: Clock, *, several_names: timedelta = timedelta()) -> None:
        self._settle = settle
        self._several_names = several_names
        self._clock = clock
        self._observed: dict[Path, tuple[FileStatus, datetime]] = {}

    def __len__(self) -> int:
        return len(self._observed)

    def __contains__(self, path: Path) -> bool:
        return path in self._observed

    @property
    def paths(self) -> list[Path]:
        return list(self._observed)

    def has_settled(self, path: Path, status: FileStatus) -> bool:
        """Record the present status of a file. Return True if the file has settled."""
        now = self._clock()
        before = self._observed.get(path)
        # A clock that was set back starts the wait again.
        if before is None or before[0] != status or now < before[1]:
            self._observed[path] = (status, now)
            return before is None and not self._wait(status)
        return now - before[1] >= self._wait(status)

    def watch(self, path: Path, status: FileStatus) -> None:
        """Start to observe a file. It settles at the next call of ``has_settled`` at the earliest, even without a
        settle time."""
        self._observed[path] = (status, self._clock())

    def drop(self, path: Path) -> None:
        """Stop observing a file."""
        self._observed.pop(path, None)

    def keep_only(self, paths: Collection[Path]) -> None:
        """Stop observing all files except these."""
        for path in self._observed.keys() - paths:
            del self._observed[path]

    def next_in(self, longest: timedelta) -> timedelta:
        """Return the time until another file may have settled, at most ``longest``."""
        now = self._clock()
        waits = (since + self._wait(status) - now for status, since in self._observed.values())
        return min([longest, *(wait for wait in waits if wait > timedelta())])

    def _wait(self, status: FileStatus) -> timedelta:
        return max(self._settle, self._several_names) if status.links > 1 else self._settle
