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
        left = f"{self.bytes_left / 1e6:,.0f} MB of {self.bytes_total / 1e6:,.0f} MB left ({files})"
        return f"{self.location}: {self.rows:,} rows{bad}, {self.rate:,.0f} rows/s, {left}"


class BulkMeter:
    """Looks at a location now and then."""

    def __init__(self, name: str, location_id: uuid.UUID) -> None:
        self._name = name
        self._location_id = location_id
        self._seen: deque[tuple[float, int]] = deque()
        self._finished: dict[uuid.UUID, tuple[int, int, int]] = {}

    def look(self, connection: Connection, now: float) -> BulkProgress:
        """``now`` in seconds, of any clock that only goes forward."""
        found = connection.execute(
            statement("queries/bulk_progress"), (self._location_id, self._location_id)
        ).fetchall()
        open_ids = {interchange_id for interchange_id, *_ in found}
        # A file that is done leaves the table; what was last seen of it is kept, and all its bytes count as read.
        for interchange_id, size, rows, bad, _ in found:
            self._finished[interchange_id] = (size, rows, bad)
        rows = sum(rows for _, rows, _ in self._finished.values())
        self._seen.append((now, rows))
        while self._seen[-1][0] - self._seen[0][0] > _WINDOW:
            self._seen.popleft()
        (first, before), passed = self._seen[0], self._seen[-1][0] - self._seen[0][0]
        del first
        return BulkProgress(
            location=self._name,
            rows=rows,
            bad=sum(bad for _, _, bad in self._finished.values()),
            rate=(rows - before) / passed if passed else 0.0,
            files_left=len(open_ids),
            bytes_left=sum(size - done for _, size, _, _, done in found),
            bytes_total=sum(size for size, _, _ in self._finished.values()),
        )
