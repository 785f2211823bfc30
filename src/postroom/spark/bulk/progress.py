"""The progress of a bulk location: rows, rows per second, and remaining bytes. It never goes back."""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from postroom.errors import format_count
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake.splits import read_unfinished_files

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
        files = format_count(self.files_left, "file")
        rows = f"{self.location}: {format_count(self.rows, 'row')}{bad}"
        if not self.files_left:
            return f"{rows}, nothing left"
        left = f"{_format_size(self.bytes_left)} of {_format_size(self.bytes_total)} left ({files})"
        return f"{rows}, {self.rate:,.0f} rows/s, {left}"


def _format_size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 10_000_000 else f"{count / 1e3:,.0f} KB"


#: The totals of some files: size, rows, and bad rows.
_Sums = Counter[str]


class BulkMeter:
    """Reads the progress of a location from the MessageBox, over several rounds of publishing.

    Rows that were published before the first reading, by an earlier process, are not counted."""

    def __init__(self, name: str, location_id: uuid.UUID) -> None:
        self._name = name
        self._location_id = location_id
        self._readings: deque[tuple[float, int]] = deque()
        self._open: dict[uuid.UUID, _Sums] = {}
        #: What the files had when they were first read.
        self._before: dict[uuid.UUID, _Sums] = {}
        self._finished: _Sums = Counter()
        #: The total of the last reading.
        self._total: _Sums = Counter()

    def read(self, connection: Connection, now: float, counts: Mapping[str, int] | None = None) -> BulkProgress:
        """Return the progress. ``now`` is in seconds of a monotonic clock.

        At the end of a round ``counts`` are the exact counts since the start: the MessageBox has no rows of finished
        files any more."""
        found = read_unfinished_files(connection, self._location_id)
        known: dict[uuid.UUID, _Sums] = {}
        for file, size, rows, bad, _ in found:
            before = self._before.setdefault(file, Counter(rows=rows, bad=bad))
            known[file] = Counter(size=size, rows=rows, bad=bad) - before
        # A finished file has no row. Its last known totals are counted.
        for interchange_id in self._open.keys() - known.keys():
            self._finished += self._open[interchange_id]
            del self._before[interchange_id]
        self._open = known
        unfinished = sum(known.values(), _Sums())
        total = self._finished + unfinished
        if counts is not None:
            total |= Counter(rows=counts["rows"], bad=counts["bad"])
            self._finished = total - unfinished
        self._total |= total
        return BulkProgress(
            location=self._name,
            rows=self._total["rows"],
            bad=self._total["bad"],
            rate=self._rate(now, self._total["rows"]),
            files_left=len(known),
            bytes_left=sum(size - done for _, size, _, _, done in found),
            bytes_total=self._total["size"],
        )

    def _rate(self, now: float, rows: int) -> float:
        self._readings.append((now, rows))
        while now - self._readings[0][0] > _WINDOW:
            self._readings.popleft()
        since, before = self._readings[0]
        return (rows - before) / (now - since) if now > since else 0.0
