"""Heartbeats on sessions that hold session locks.

A frozen process keeps its connections, and so its locks. PostgreSQL therefore ends a session with a lock that sends
nothing for some seconds. A thread of the process sends a statement every 2 s, because the owner of a lock may be busy
with something else for longer.
"""

from __future__ import annotations

import threading
import weakref

from psycopg.pq import TransactionStatus

from postroom.messagebox.connection import IDLE_TIMEOUTS, Connection
from postroom.processes.background_loop import BackgroundLoop

HEARTBEAT_SECONDS = 2.0

_READY = (TransactionStatus.IDLE, TransactionStatus.INTRANS)


def keep_alive(connection: Connection) -> None:
    """Set idle timeouts and send heartbeats, so that PostgreSQL ends the session if this process freezes.

    Call it before the session acquires a lock.
    """
    for name, value in IDLE_TIMEOUTS.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    send_heartbeats(connection)


def send_heartbeats(connection: Connection) -> None:
    """Send heartbeats on a connection that has an idle timeout, until it is closed."""
    _heartbeats.add(connection)


class _Heartbeats:
    """The connections of this process that need heartbeats, and the thread that sends them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._loop: BackgroundLoop | None = None

    def add(self, connection: Connection) -> None:
        with self._lock:
            self._connections.add(connection)
            if self._loop is None:
                self._loop = BackgroundLoop("heartbeats", self._step)
                self._loop.start()

    def _step(self) -> float:
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            if connection.closed:
                with self._lock:
                    self._connections.discard(connection)
            else:
                _send_heartbeat(connection)
        return HEARTBEAT_SECONDS


def _send_heartbeat(connection: Connection) -> None:
    """Send a statement, unless the session is busy: another thread uses the connection, or a COPY runs."""
    if connection.lock.acquire(blocking=False):
        try:
            if connection.pgconn.transaction_status in _READY:
                connection.pgconn.exec_(b"SELECT 1")
        finally:
            connection.lock.release()


_heartbeats = _Heartbeats()
