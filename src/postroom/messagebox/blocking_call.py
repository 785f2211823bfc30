"""A statement that is run by libpq's own blocking call, for threads that share an interpreter with busy ones.

That call lets go of the interpreter's lock until the whole answer is there. The driver's execute takes the lock for
every few kilobytes of it, and has to wait for the lock each time while other threads are at work.
"""

from __future__ import annotations

from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from postroom.messagebox.connection import Connection
from postroom.messagebox.postgres_errors import translated_errors


def blocking_call(connection: Connection, command: bytes, *arguments: object) -> PGresult:
    """The answer to one SELECT, with $1, $2 ... for its arguments, in binary form. Raises what ``execute`` would raise.

    Not prepared: the driver forgets what is prepared on a connection whenever a transaction is rolled back.
    """
    encoded = [None if value is None else str(value).encode() for value in arguments]
    with translated_errors():
        with connection.lock:
            result = connection.pgconn.exec_params(command, encoded, result_format=Format.BINARY)
        if result.status != ExecStatus.TUPLES_OK:
            raise error_from_result(result, encoding=connection.info.encoding)
    return result
