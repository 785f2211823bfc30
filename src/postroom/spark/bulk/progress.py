"""The progress of a bulk location: rows, rows per second, and remaining bytes."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import dataclass

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

#: The rate is measured over this many seconds.
_WINDOW = 30.0


@dataclass(frozen=True, kw_only=True)
class BulkProgress:
    """What a location has received since its start, and what it has claimed and not finished."""

    location: str
    rows: int
    bad: int
    rate: float
    """Rows per second."""
    files_left: int
    bytes_left: int
    bytes_total: int
    """The size of the remaining and the finished files."""

    def __str__(self) -> str:
        bad = f", {self.bad:,} bad" if self.bad else ""
        files = "one file" if self.files_left == 1 else f"{self.files_left:,} files"
        rows = f"{self.location}: {self.rows:,} rows{bad}"
        if not self.files_left:
            return f"{rows}, nothing left"
        left = f"{_format_size(self.bytes_left)} of {_format_size(self.bytes_total)} left ({files})"
        return f"{rows}, {self.rate:,.0f} rows/s, {left}"


def _format_size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 10_000_000 else f"{count / 1e3:,.0f} KB"


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """The totals of some files."""

    size: int = 0
    rows: int = 0
    bad: int = 0

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(size=self.size + other.size, rows=self.rows + other.rows, bad=self.bad + other.bad)


class BulkMeter:
    """Reads the progress of a location from the MessageBox."""

    def __init__(self, name: str, location_id: uuid.UUID) -> None:
        self._name = name
        self._location_id = location_id
        self._readings: deque[tuple[float, int]] = deque()
        self._open: dict[uuid.UUID, _Sums] = {}
        self._finished = _Sums()

    def read(self, connection: Connection, now: float) -> BulkProgress:
        """Return the progress. ``now`` is in seconds of a monotonic clock."""
        found = connection.execute(
            statement("queries/bulk_progress"), (self._location_id, self._location_id)
        ).fetchall()
        known = {file: _Sums(size=size, rows=rows, bad=bad) for file, size, rows, bad, _ in found}
        # A finished file has no row. Its last known totals are counted.
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
        self._readings.append((now, rows))
        while now - self._readings[0][0] > _WINDOW:
            self._readings.popleft()
        since, before = self._readings[0]
        return (rows - before) / (now - since) if now > since else 0.0
