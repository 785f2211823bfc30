"""What a bulk location has counted: by what its jobs tell, and by receipts where a job did not live to tell.

A job that fails has published what its other tasks came to, and the job after it finds that done.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from postroom.messagebox.connection import Connection

if TYPE_CHECKING:
    from pyspark.sql import Row

#: What is counted.
COUNTED = ("files", "rows", "bad", "published", "suspended", "routed", "empty")


class RowCounts:
    """Counts the rows of files, each once."""

    def __init__(self) -> None:
        #: What is COUNTED, since the start.
        self.counts: Counter[str] = Counter()
        #: Rows and bad rows of the files that are read, as far as they are counted or were there before.
        self._known: dict[uuid.UUID, tuple[int, int]] = {}

    def begin(self, connection: Connection, files: Collection[uuid.UUID]) -> None:
        """What another process has published of them does not count here."""
        new = [one for one in files if one not in self._known]
        if new:
            found = _by_receipts(connection, new)
            self._known.update({one: found.get(one, (0, 0)) for one in new})

    def add(self, tally: Row) -> None:
        """What a task tells."""
        told = tally.asDict()
        self.counts.update({name: told[name] for name in COUNTED if name in told})
        file = uuid.UUID(tally.interchange_id)
        rows, bad = self._known.get(file, (0, 0))
        self._known[file] = rows + tally.rows, bad + tally.bad

    def catch_up(self, connection: Connection, file: uuid.UUID, *, is_done: bool = False) -> int:
        """How many rows of the file are published or suspended by now. Those that nobody has told of are counted: bad
        ones as suspended, the others as published, since receipts do not say more."""
        rows, bad = _by_receipts(connection, [file]).get(file, (0, 0))
        known_rows, known_bad = self._known.pop(file, (0, 0))
        untold, untold_bad = max(0, rows - known_rows), max(0, bad - known_bad)
        self.counts.update(rows=untold, bad=untold_bad, published=untold - untold_bad, suspended=untold_bad)
        if not is_done:
            self._known[file] = known_rows + untold, known_bad + untold_bad
        return rows


def _by_receipts(connection: Connection, files: Collection[uuid.UUID]) -> Mapping[uuid.UUID, tuple[int, int]]:
    found = connection.execute("SELECT interchange_id, row_count, bad_rows FROM split_progress(%s)", (list(files),))
    return {one: (rows, bad) for one, rows, bad in found}
