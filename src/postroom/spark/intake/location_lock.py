"""One process at a time takes in messages for a receive location: it holds the location's lock on a session."""

from __future__ import annotations

import uuid
import zlib

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connection

#: The class of the advisory locks of receive locations; the other half stands for the location.
LOCATION_LOCK = 7003

#: The class of the advisory locks of the order of ordered locations: for those who number claims, or take them back.
ORDER_LOCK = 7004


def lock_number(location_id: uuid.UUID) -> int:
    """The half of the advisory lock that stands for a location."""
    return zlib.crc32(location_id.bytes) - (1 << 31)


class LocationLock:
    """The lock of one location, on one session. Ends with the session, however that ends."""

    def __init__(self, connection: Connection, location_id: uuid.UUID) -> None:
        self._connection = connection
        self._number = lock_number(location_id)
        self._held = False

    def is_held(self) -> bool:
        """Takes the lock if it is free. Raises Unavailable if it was held and is gone."""
        if not self._held:
            row = self._connection.execute(
                "SELECT pg_try_advisory_lock(%s, %s)", (LOCATION_LOCK, self._number)
            ).fetchone()
            self._held = row is not None and bool(row[0])
            return self._held
        # A pooler in transaction mode would give every statement another session, none of which has the lock.
        row = self._connection.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s::bigint"
            " AND objsubid = 2 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND pid = pg_backend_pid() AND granted",
            (LOCATION_LOCK, self._number % (1 << 32)),
        ).fetchone()
        if row is None:
            raise Unavailable(
                "The lock on the receive location is gone.",
                why="The connection to the MessageBox has no session of its own.",
                hint="Give the pipeline a URL that leads to PostgreSQL itself, or to a pool in session mode.",
            )
        return True

    def release(self) -> None:
        """Lets another process have it."""
        if self._held:
            self._held = False
            self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCATION_LOCK, self._number))
