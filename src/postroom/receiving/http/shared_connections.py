"""A small connection pool that many threads share."""

from __future__ import annotations

import queue
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
            yield lazy.get_working()
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
