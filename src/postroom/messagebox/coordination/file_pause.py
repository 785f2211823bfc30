"""The lock on the files of the MessageBox. A backup holds it exclusively, processes that move files hold it shared.

In a backup the claimed files must match the snapshot of the database. So no file may be claimed, removed or archived
between the snapshot and the copy of the files. PostgreSQL releases the lock when the session of the backup ends, also
after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from postroom.errors import LockTimeout, Unavailable
from postroom.messagebox.connection import Connection, connect, read_value
from postroom.messagebox.coordination.heartbeat import send_heartbeats

#: The advisory lock on all files of the MessageBox. ``start_stream_batch`` locks it, too.
FILES_LOCK = (7001, 3)

_LOCK_TIMEOUT = "60s"
#: A backup that is frozen for this time loses its lock. All receive locations wait for it.
_IDLE_TIMEOUT = "5s"


@contextmanager
def lock_files(connection: Connection) -> Iterator[bool]:
    """Lock the files shared, on the session, while they are moved. Yield False if a backup is copying them."""
    is_locked = bool(read_value(connection, "SELECT pg_try_advisory_lock_shared(%s, %s)", *FILES_LOCK))
    try:
        yield is_locked
    finally:
        if is_locked and not connection.closed:
            connection.execute("SELECT pg_advisory_unlock_shared(%s, %s)", FILES_LOCK)


def lock_files_in_transaction(connection: Connection) -> bool:
    """Lock the files shared until the transaction ends. Return False if a backup is copying them."""
    return bool(read_value(connection, "SELECT pg_try_advisory_xact_lock_shared(%s, %s)", *FILES_LOCK))


class FilePause:
    """The exclusive lock of a backup, on a session of its own. No file is claimed or removed while it is held.

    PostgreSQL ends the session of a frozen backup.
    """

    def __init__(self, url: str) -> None:
        self._connection = connect(
            url,
            application_name="postroom backup pause",
            server_settings={"idle_session_timeout": _IDLE_TIMEOUT},
        )
        send_heartbeats(self._connection)

    def acquire(self) -> None:
        """Wait until no process moves files. Raise Unavailable after the timeout."""
        try:
            self._connection.execute("SELECT set_config('lock_timeout', %s, false)", (_LOCK_TIMEOUT,))
            self._connection.execute("SELECT pg_advisory_lock(%s, %s)", FILES_LOCK)
        except LockTimeout:
            raise Unavailable(
                "The files could not be locked.",
                why="A process has been moving files, or another backup has been copying them, for a long time.",
                hint="Try again later. pg_locks shows the process: classid 7001, objid 3.",
            ) from None

    def release(self) -> None:
        """Release the lock.

        Raise Unavailable or MessageBoxUnavailable if it was lost before. Then the copies may not match the snapshot.
        """
        if not read_value(self._connection, "SELECT pg_advisory_unlock(%s, %s)", *FILES_LOCK):
            raise Unavailable(
                "The lock on the files was lost during the backup.",
                why="The connection to the MessageBox has no session of its own.",
                hint="Give the backup the URL of PostgreSQL itself, or of a pool in session mode.",
            )

    def close(self) -> None:
        self._connection.close()
