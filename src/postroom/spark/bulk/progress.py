"""How far a bulk location has come: rows, their rate, and what is left."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

#: The rate is that of so many seconds.
_WINDOW = 30.0


@dataclass(frozen=True, kw_only=True)
class BulkProgress:
    """What a location has done since it was started, and what it has claimed and not finished."""

    location: str
    rows: int
    bad: int
    rate: float
    """Rows a second."""
    files_left: int
    bytes_left: int
    bytes_total: int
    """Of the files that are left, and of those that are done."""

    def __str__(self) -> str:
        bad = f", {self.bad:,} bad" if self.bad else ""
        files = "one file" if self.files_left == 1 else f"{self.files_left:,} files"
        rows = f"{self.location}: {self.rows:,} rows{bad}"
        if not self.files_left:
            return f"{rows}, nothing left"
        left = f"{_size(self.bytes_left)} of {_size(self.bytes_total)} left ({files})"
        return f"{rows}, {self.rate:,.0f} rows/s, {left}"


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 10_000_000 else f"{count / 1e3:,.0f} KB"


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Of some files."""

    size: int = 0
    rows: int = 0
    bad: int = 0

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(size=self.size + other.size, rows=self.rows + other.rows, bad=self.bad + other.bad)


class BulkMeter:
    """Looks at a location now and then."""

    def __init__(self, name: str, location_id: uuid.UUID) -> None:
        self._name = name
        self._location_id = location_id
        self._seen: deque[tuple[float, int]] = deque()
        self._open: dict[uuid.UUID, _Sums] = {}
        self._finished = _Sums()

    def look(self, connection: Connection, now: float) -> BulkProgress:
        """``now`` in seconds, of any clock that only goes forward."""
        found = connection.execute(
            statement("queries/bulk_progress"), (self._location_id, self._location_id)
        ).fetchall()
        known = {one: _Sums(size=size, rows=rows, bad=bad) for one, size, rows, bad, _ in found}
        # A file that is done leaves the table; what was last seen of it counts.
        for interchange_id in self._open.keys() - known.keys():
            self._finished = self._finished.plus(self._open[interchange_id])
        self._open = known
        total = self._finished
        for sums in known.values():
            total = total.plus(sums)
        return BulkProgress(
            location=self._name,
            rows=total.rows,
            bad=total.bad,
            rate=self._rate(now, total.rows),
            files_left=len(known),
            bytes_left=sum(size - done for _, size, _, _, done in found),
            bytes_total=total.size,
        )

    def _rate(self, now: float, rows: int) -> float:
        self._seen.append((now, rows))
        while now - self._seen[0][0] > _WINDOW:
            self._seen.popleft()
        since, before = self._seen[0]
        return (rows - before) / (now - since) if now > since else 0.0
