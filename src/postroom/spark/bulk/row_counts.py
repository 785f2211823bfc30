"""Count the rows of a bulk location: from the tallies of its jobs, and from receipts after a job has failed.

A failed job returns no tallies, but some of its tasks have published rows. The next job finds them published.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from postroom.messagebox.connection import Connection
from postroom.messagebox.streams.splits import read_row_counts

if TYPE_CHECKING:
    from pyspark.sql import Row

#: The names of the counts.
COUNTED = ("files", "rows", "bad", "published", "suspended", "routed", "empty")


class RowCounts:
    """Counts each row of the files once."""

    def __init__(self) -> None:
        #: The counts since the start, by the names in COUNTED.
        self.counts: Counter[str] = Counter()
        #: The rows and bad rows of open files that are counted, or were published before the start.
        self._known: dict[uuid.UUID, tuple[int, int]] = {}

    def start(self, connection: Connection, files: Collection[uuid.UUID]) -> None:
        """Start to count files. Rows that another process has published are not counted."""
        new = [file for file in files if file not in self._known]
        if new:
            found = read_row_counts(connection, new)
            self._known.update({file: found.get(file, (0, 0)) for file in new})

    def add(self, tally: Row) -> None:
        """Count the tally of a task."""
        values = tally.asDict()
        self.counts.update({name: values[name] for name in COUNTED if name in values})
        file = uuid.UUID(tally.interchange_id)
        rows, bad = self._known.get(file, (0, 0))
        self._known[file] = rows + tally.rows, bad + tally.bad

    def catch_up(self, connection: Connection, file: uuid.UUID, *, is_done: bool = False) -> int:
        """Count the rows that no tally has reported: bad rows as suspended, the others as published, because receipts
        have no more details. Return the number of rows of the file that are published or suspended now."""
        rows, bad = read_row_counts(connection, [file]).get(file, (0, 0))
        known_rows, known_bad = self._known.pop(file, (0, 0))
        missing, missing_bad = max(0, rows - known_rows), max(0, bad - known_bad)
        self.counts.update(rows=missing, bad=missing_bad, published=missing - missing_bad, suspended=missing_bad)
        if not is_done:
            self._known[file] = known_rows + missing, known_bad + missing_bad
        return rows
