"""A small connection pool that many threads share."""

from __future__ import annotations

import queue
import select
from collections.abc import Iterator
from contextlib import contextmanager

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connect, Connection, LazyConnection

#: How long a request waits for a free connection, in seconds.
CONNECTION_TIMEOUT = 10.0


class SharedConnections:
    """At most ``size`` connections, opened at their first use. The last used connection is used first."""

    def __init__(self, connect: Connect, size: int) -> None:
        self._all = [LazyConnection(connect) for _ in range(size)]
        self._free: queue.LifoQueue[LazyConnection] = queue.LifoQueue()
        for lazy in self._all:
            self._free.put(lazy)

    @contextmanager
    def borrow(self, timeout: float) -> Iterator[Connection]:
        """Yield a working connection. Raise Unavailable if none is free in time or the MessageBox is unavailable."""
        try:
            lazy = self._free.get(timeout=timeout)
        except queue.Empty:
            raise Unavailable("All connections to the MessageBox are in use.", hint="Try again later.") from None
        try:
            yield _get_working(lazy)
        except BaseException:
            # The state of the connection is unknown.
            lazy.close()
            raise
        finally:
            self._free.put(lazy)

    def close(self) -> None:
        """Close the free connections. The other connections are closed by their users or with the process."""
        for _ in self._all:
            try:
                self._free.get_nowait().close()
            except queue.Empty:
                return


def _get_working(lazy: LazyConnection) -> Connection:
    """Return the connection. Open it again if the server has closed it since its last use."""
    try:
        connection = lazy.get()
        if _has_input(connection):
            connection.execute("SELECT 1")
        return connection
    except Unavailable:
        lazy.close()
        return lazy.get()


def _has_input(connection: Connection) -> bool:
    """Return True if the server has sent something since the last statement. It does so before it closes a
    connection. A statement to find that out would cost each request a round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
