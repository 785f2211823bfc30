"""When a file is no longer being written: it looked the same for a while."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from postroom.clock import Clock
from postroom.regular_files import inode_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at a file shows. ``links`` is the number of its names."""

    size: int
    modified_ns: int
    inode: int
    links: int = 1
    is_regular: bool = True

    @classmethod
    def of(cls, status: os.stat_result) -> Look:
        return cls(
            size=status.st_size,
            modified_ns=status.st_mtime_ns,
            inode=inode_of(status),
            links=status.st_nlink,
            is_regular=stat.S_ISREG(status.st_mode),
        )


class Settling:
    """Files under observation. A file has settled when two looks, ``settle`` apart or more, and all between them were
    the same. One with several names has to look the same for ``several_names``, if that is longer."""

    def __init__(self, settle: timedelta, clock: Clock, *, several_names: timedelta = timedelta()) -> None:
        self._settle = settle
        self._several_names = several_names
        self._clock = clock
        self._seen: dict[Path, tuple[Look, datetime]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, path: Path) -> bool:
        return path in self._seen

    @property
    def paths(self) -> list[Path]:
        return list(self._seen)

    def has_settled(self, path: Path, look: Look) -> bool:
        """Takes note of a look, and says whether it was enough."""
        now = self._clock()
        before = self._seen.get(path)
        # A clock that was set back starts the wait again.
        if before is None or before[0] != look or now < before[1]:
            self._seen[path] = (look, now)
            return before is None and not self._wait(look)
        return now - before[1] >= self._wait(look)

    def watch(self, path: Path, look: Look) -> None:
        """Begins to observe a file. However short the wait, it takes another look to end it."""
        self._seen[path] = (look, self._clock())

    def drop(self, path: Path) -> None:
        """The file is no longer of interest."""
        self._seen.pop(path, None)

    def keep_only(self, paths: Collection[Path]) -> None:
        """The others are not there any more."""
        for path in self._seen.keys() - paths:
            del self._seen[path]

    def next_in(self, longest: timedelta) -> timedelta:
        """How long until another file may have settled, at most ``longest``."""
        now = self._clock()
        waits = (since + self._wait(look) - now for look, since in self._seen.values())
        return min([longest, *(wait for wait in waits if wait > timedelta())])

    def _wait(self, look: Look) -> timedelta:
        return max(self._settle, self._several_names) if look.links > 1 else self._settle
