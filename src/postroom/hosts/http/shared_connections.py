"""A few connections that many threads share, each for as long as one piece of work takes."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager

from postroom.errors import Unavailable
from postroom.messagebox.connection import Connect, Connection, LazyConnection


class SharedConnections:
    """At most ``size`` connections, opened when they are needed; the one that was used last is used first."""

    def __init__(self, connect: Connect, size: int) -> None:
        self._all = [LazyConnection(connect) for _ in range(size)]
        self._free: queue.LifoQueue[LazyConnection] = queue.LifoQueue()
        for one in self._all:
            self._free.put(one)

    @contextmanager
    def one(self, within: float) -> Iterator[Connection]:
        """A connection that answers. Unavailable if none is free in time, or the MessageBox is away."""
        try:
            lazy = self._free.get(timeout=within)
        except queue.Empty:
            raise Unavailable("All connections to the MessageBox are in use.", hint="Try again later.") from None
        try:
            yield _answering(lazy)
        except BaseException:
            # Whatever state it is in.
            lazy.close()
            raise
        finally:
            self._free.put(lazy)

    def close(self) -> None:
        """Closes those that nobody uses; the others are closed by who has them, or with the process."""
        for _ in self._all:
            try:
                self._free.get_nowait().close()
            except queue.Empty:
                return


def _answering(lazy: LazyConnection) -> Connection:
    """The connection, made again if the server has gone away since it was used."""
    try:
        connection = lazy.get()
        connection.execute("SELECT 1")
        return connection
    except Unavailable:
        lazy.close()
        return lazy.get()
