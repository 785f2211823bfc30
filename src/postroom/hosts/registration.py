"""By what the others know that a host instance lives: a row, and a session lock on its number.

The connection that holds the lock also listens for wake-ups, so that its loss is noticed at once. When it is lost
nothing more is handed out until the instance has its lock again.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from psycopg import sql

from postroom.background_loop import BackgroundLoop
from postroom.errors import PostroomError
from postroom.hosts.pooler import backend_pid, check_session, refuse_transaction_pooler
from postroom.messagebox.configuration import Host
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.postgres_errors import translated_errors
from postroom.messagebox.queues import HostQueues, channel_of

_log = logging.getLogger(__name__)

#: The class of the advisory locks that host instances hold; the other half is the instance's number.
INSTANCE_LOCK = 7002

#: The server must not give up the session before this side has noticed the loss: this side takes 6 s, the server 11 s.
LOCK_SOCKET = {
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "6000",
}
LOCK_SERVER = {"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3"}

_REGISTER = """
    INSERT INTO management.host_instances (host_id, server, pid) VALUES (%s, %s, %s)
    RETURNING id, pg_advisory_lock(%s, id)
"""
_REGISTER_AGAIN = """
    INSERT INTO management.host_instances (id, host_id, server, pid) OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s)
    ON CONFLICT (id) DO UPDATE SET dead_since = NULL
"""
# Our last session may still stand, if only this side has noticed that the network broke.
_END_LAST_SESSION = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
     WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND classid = %s AND objid = %s AND pid = %s
"""


class Registration:
    """One host instance's row and lock. ``register`` once; the loop keeps it until ``deregister``."""

    def __init__(
        self,
        *,
        connect: Connect,
        connect_other: Connect,
        host: Host,
        queues: HostQueues,
        heartbeat: timedelta,
        on_wake: Callable[[], None],
        on_lost: Callable[[], None],
        on_back: Callable[[], None],
        held: Callable[[], Sequence[int]],
    ) -> None:
        self._connect = connect
        self._connect_other = connect_other
        self._host = host
        self._queues = queues
        self._heartbeat = heartbeat.total_seconds()
        self._on_wake = on_wake
        self._on_lost = on_lost
        self._on_back = on_back
        self._held = held
        self._connection: Connection | None = None
        self._session = 0
        self._interrupted, self._interrupter = -1, -1
        self.host_instance = 0
        #: How often the lock was lost and taken again.
        self.returns = 0
        self.loop = BackgroundLoop("registration", self._step, interrupt=self._interrupt)

    def register(self) -> int:
        """A new number, with its lock. Refuses a connection on which a session lock would not hold."""
        connection = self._connect()
        try:
            with self._connect_other() as other:
                refuse_transaction_pooler(connection, other)
            row = connection.execute(
                _REGISTER, (self._host.host_id, socket.gethostname(), os.getpid(), INSTANCE_LOCK)
            ).fetchone()
            assert row is not None
            self.host_instance = int(row[0])
            self._listen(connection)
        except BaseException:
            connection.close()
            raise
        self._interrupted, self._interrupter = os.pipe()
        return self.host_instance

    def deregister(self) -> None:
        """Gives back whatever is still claimed, and the number."""
        os.close(self._interrupted)
        os.close(self._interrupter)
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(PostroomError), connection:
                self._queues.release_claims(connection, self.host_instance)
                connection.execute("DELETE FROM management.host_instances WHERE id = %s", (self.host_instance,))

    def _interrupt(self) -> None:
        os.write(self._interrupter, b"x")

    def _step(self) -> float:
        if self._connection is None:
            self._register_again()
            self.returns += 1
            self._on_back()
        try:
            self._watch(self._connection)
            return 0.0
        except BaseException:
            self._on_lost()
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            raise

    def _watch(self, connection: Connection | None) -> None:
        """Waits for a wake-up, for the heartbeat, or for the end of the connection."""
        assert connection is not None
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._interrupted, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(self._heartbeat * 1000)}
        if connection.fileno() in ready:
            with translated_errors():
                connection.pgconn.consume_input()
            while connection.pgconn.notifies():
                self._on_wake()
        elif not ready:
            check_session(connection, self._session)

    def _register_again(self) -> None:
        connection = self._connect()
        try:
            connection.execute(_END_LAST_SESSION, (INSTANCE_LOCK, self.host_instance, self._session))
            with connection.transaction():
                # The job that looks for dead instances may hold it for a moment.
                connection.execute("SET LOCAL lock_timeout = '5s'")
                connection.execute("SELECT pg_advisory_lock(%s, %s)", (INSTANCE_LOCK, self.host_instance))
                arguments = (self.host_instance, self._host.host_id, socket.gethostname(), os.getpid())
                connection.execute(_REGISTER_AGAIN, arguments)
            released = self._queues.release_claims(connection, self.host_instance, self._held())
            self._listen(connection)
        except BaseException:
            connection.close()
            raise
        _log.info("host instance %d has its lock again; %d messages were given back", self.host_instance, released)

    def _listen(self, connection: Connection) -> None:
        # Wake-ups that arrive together with the answer to a statement are not left in the connection's own buffer.
        connection.add_notify_handler(lambda _: self._on_wake())
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel_of(self._host.name))))
        self._session = backend_pid(connection)
        self._connection = connection
