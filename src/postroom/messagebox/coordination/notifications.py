"""Notifications of PostgreSQL to running processes: a change of the configuration, or new messages for a host.

    listener = Listener(connect, {CONFIGURATION_CHANNEL: on_change})
    connection = listener.get()                          # again and again; it does not wait for notifications

Every change of the configuration notifies all processes at its commit (change_routing).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from psycopg import sql

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.postgres_errors import translate_errors

#: All processes are notified here after a change of the configuration.
CONFIGURATION_CHANNEL = "postroom_configuration"

#: A publisher wakes a host at most this often, in seconds.
_QUIET_SECONDS = 0.02
#: So a host that was woken keeps polling for this time, which is longer.
AFTER_WAKE_UP = 0.03

#: Inside ``defer_wake_ups``: the hosts to wake at its end.
_deferred: ContextVar[set[str] | None] = ContextVar("deferred_wake_ups", default=None)

#: What to call for a notification, by channel.
Channels = Mapping[str, Callable[[], None]]


class Listener:
    """A connection that listens on channels. It is opened when it is needed, and again after it was closed.

    ``prepare`` is called with each new connection, which may have missed notifications. The configuration is read after
    that. If anything fails, the caller closes the listener, and tries again later. Used by one thread."""

    def __init__(
        self, connect: Connect, channels: Channels, *, prepare: Callable[[Connection], None] = lambda connection: None
    ) -> None:
        self._connect = connect
        self._channels = channels
        self._prepare = prepare
        #: None while it is closed.
        self.connection: Connection | None = None

    def get(self) -> Connection:
        """Return the connection, after the notifications that have arrived are handled. Raise Unavailable if it is lost
        or cannot be opened."""
        if self.connection is None:
            connection = self._connect()
            try:
                self._prepare(connection)
                self._listen(connection)
            except BaseException:
                connection.close()
                raise
            self.connection = connection
        else:
            _receive_notifications(self.connection, self._channels)
        return self.connection

    def close(self) -> None:
        """Close the connection. The locks of its session are released."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _listen(self, connection: Connection) -> None:
        # Without a handler, notifications that arrive with the answer to a statement would stay in the driver's buffer.
        connection.add_notify_handler(lambda notification: self._channels[notification.channel]())
        for channel in self._channels:
            listen_on(connection, channel)


def listen_on(connection: Connection, channel: str) -> None:
    """Listen on a channel for the rest of the session. The caller waits for the notifications itself."""
    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))


def _receive_notifications(connection: Connection, channels: Channels) -> None:
    """Handle the notifications that have arrived. Do not wait for any. Raise Unavailable if the connection is lost."""
    received = []
    with translate_errors(), connection.lock:
        connection.pgconn.consume_input()
        while notification := connection.pgconn.notifies():
            received.append(notification.relname.decode())
    for channel in received:
        channels[channel]()


def wake_up_channel(host_name: str) -> str:
    """Return the channel that the instances of a host listen on."""
    return f"postroom_{host_name.lower()}"


@contextmanager
def defer_wake_ups(connection: Connection) -> Iterator[None]:
    """Delay wake-ups until the end of the block, for operations in one transaction. After an error none is sent."""
    hosts: set[str] = set()
    token = _deferred.set(hosts)
    try:
        yield
    finally:
        _deferred.reset(token)
    WakeUp(connection).send(hosts)


@dataclass(kw_only=True)
class OwnHost:
    """The host that this process is an instance of. Many threads share it.

    ``wake`` wakes this instance directly, without the MessageBox. The other instances are notified at most once in a
    moment.
    """

    name: str
    wake: Callable[[], None]
    notified_at: float = 0.0


class WakeUp:
    """Wakes hosts after a commit that put rows into their queues, at most once per host and moment.

    A NOTIFY inside a publishing transaction would take a database-wide lock until it commits. A lost wake-up costs only
    time, because every host polls."""

    def __init__(self, connection: Connection, own_host: OwnHost | None = None) -> None:
        self._connection = connection
        self._own_host = own_host
        self._sent: dict[str, float] = {}

    def send(self, hosts: Iterable[str]) -> None:
        """Wake these hosts, except those that were woken a moment ago."""
        deferred = _deferred.get()
        if deferred is not None:
            deferred.update(hosts)
            return
        now = time.monotonic()
        due = [host for host in hosts if now - self._sent.get(host, 0.0) > _QUIET_SECONDS]
        if self._own_host is not None and self._own_host.name.lower() in due:
            self._own_host.wake()
            if now - self._own_host.notified_at <= _QUIET_SECONDS:
                due.remove(self._own_host.name.lower())
            else:
                self._own_host.notified_at = now
        for host in due:
            self._sent[host] = now
        if due:
            # The work is committed. A failed wake-up must not be reported as a failure of the work.
            with suppress(PostroomError):
                self._connection.execute(
                    "SELECT pg_notify(channel, '') FROM unnest(%s::text[]) channel",
                    ([wake_up_channel(host) for host in due],),
                )
