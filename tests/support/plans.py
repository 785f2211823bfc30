"""Count the scans of tables and indexes in a transaction, with the counters of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from postroom.messagebox.connection import Connection

_COUNTS = """
    SELECT c.relname, pg_stat_get_xact_numscans(c.oid), pg_stat_get_xact_tuples_returned(c.oid)
      FROM pg_class c
     WHERE c.relkind IN ('r', 'i') AND c.relnamespace = 'messagebox'::regnamespace
"""


class Reads:
    """The scans between two points of a transaction."""

    def __init__(self) -> None:
        self._scans: dict[str, int] = {}
        self._returned: dict[str, int] = {}

    def whole(self, *tables: str) -> int:
        """Return the number of sequential scans of these tables."""
        return sum(self._scans[table] for table in tables)

    def scans(self, index: str) -> int:
        """Return the number of scans of an index."""
        return self._scans[index]

    def entries(self, index: str) -> int:
        """Return the number of entries that an index returned."""
        return self._returned[index]


@contextmanager
def reads(connection: Connection) -> Iterator[Reads]:
    """Count the scans inside the block. The whole block is in one transaction."""
    before = _counts(connection)
    read = Reads()
    yield read
    for name, (scans, returned) in _counts(connection).items():
        read._scans[name] = scans - before[name][0]
        read._returned[name] = returned - before[name][1]


def _counts(connection: Connection) -> dict[str, tuple[int, int]]:
    return {name: (scans, returned) for name, scans, returned in connection.execute(_COUNTS)}
