"""The lock of a receive location, so that only one process at a time claims or numbers messages for it."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.heartbeat import keep_alive
from postroom.messagebox.statements import statement

#: The class of the advisory locks of receive locations. The number of a lock is derived from the location's id.
LOCATION_LOCK = 7003

#: The class of the advisory locks on the order of ordered locations, for processes that number or reset file claims.
ORDER_LOCK = 7004


def lock_number(location_id: uuid.UUID) -> int:
    """Return the number of the advisory locks of a location."""
    return zlib.crc32(location_id.bytes) - (1 << 31)


def find_locked_locations(connection: Connection, location_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Return the locations that a process has locked."""
    locked = {lock for (lock,) in connection.execute(statement("queries/held_locks"), (LOCATION_LOCK,))}
    return {location_id for location_id in location_ids if lock_number(location_id) % (1 << 32) in locked}


class LocationLock:
    """The lock of a location, on one session. PostgreSQL releases it when the session ends, or when this process
    freezes."""

    def __init__(self, connection: Connection, location_id: uuid.UUID) -> None:
        self._connection = connection
        self._number = lock_number(location_id)
        self._is_locked = False

    def acquire(self) -> bool:
        """Acquire the lock if it is free. Return True if this session holds it. Raise Unavailable if the session held
        it and has lost it."""
        if not self._is_locked:
            keep_alive(self._connection)
            row = self._connection.execute(
                "SELECT pg_try_advisory_lock(%s, %s)", (LOCATION_LOCK, self._number)
            ).fetchone()
            self._is_locked = row is not None and bool(row[0])
            return self._is_locked
        # A pooler in transaction mode would run every statement in another session, and none of them has the lock.
        row = self._connection.execute(
            statement("queries/is_location_lock_held"), (LOCATION_LOCK, self._number % (1 << 32))
        ).fetchone()
        if row is None:
            raise Unavailable(
                "The lock on the receive location is lost.",
                why="The connection to the MessageBox has no session of its own.",
                hint="Give the pipeline the URL of PostgreSQL itself, or of a pool in session mode.",
            )
        return True

    def release(self) -> None:
        """Release the lock, so that another process can acquire it."""
        if self._is_locked:
            self._is_locked = False
            self._connection.execute("SELECT pg_advisory_unlock(%s, %s)", (LOCATION_LOCK, self._number))
