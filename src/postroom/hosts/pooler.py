"""Recognises a pooler in transaction mode, behind which a session, and so a session lock, does not exist."""

from __future__ import annotations

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connection

_PROBES = 3


def refuse_transaction_pooler(connection: Connection, other: Connection) -> None:
    """Raises Unavailable if ``connection`` is not one session of its own. ``other`` is a second, idle connection.

    Behind a pooler in transaction mode an idle connection has no session: a transaction of the other one gets the one
    that it used last, or the next statement of this one gets another.
    """
    session = backend_pid(connection)
    with other.transaction():
        if backend_pid(other) == session:
            raise _refused()
        for _ in range(_PROBES):
            check_session(connection, session)
    check_session(connection, session)


def check_session(connection: Connection, session: int) -> None:
    """Raises Unavailable if a statement on ``connection`` does not run in that session."""
    if backend_pid(connection) != session:
        raise _refused()


def backend_pid(connection: Connection) -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def _refused() -> Unavailable:
    return Unavailable(
        "This connection to the MessageBox has no session of its own.",
        why="A pooler in transaction mode stands between; the lock that shows that a host lives would not hold.",
        hint="Give hosts a URL that leads to PostgreSQL itself, or to a pool in session mode.",
    )
