"""Notifications of PostgreSQL to running processes: a change of the configuration, or new messages for a host.

    channels = {CONFIGURATION_CHANNEL: on_change}
    listen(connection, channels)                         # before the configuration is read
    receive_notifications(connection, channels)          # again and again; it does not wait

Every change of the configuration notifies all processes at its commit (change_routing). A process that lost its
connection listens again on a new one, and then reads the configuration again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from psycopg import sql

from postroom.messagebox.connection import Connection
from postroom.messagebox.postgres_errors import translate_errors

#: All processes are notified here after a change of the configuration.
CONFIGURATION_CHANNEL = "postroom_configuration"

#: What to call for a notification, by channel.
Channels = Mapping[str, Callable[[], None]]


def listen(connection: Connection, channels: Channels) -> None:
    """Listen on these channels for the rest of the session."""
    # Without a handler, notifications that arrive with the answer to a statement would stay in the driver's buffer.
    connection.add_notify_handler(lambda notification: channels[notification.channel]())
    for channel in channels:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))


def receive_notifications(connection: Connection, channels: Channels) -> None:
    """Handle the notifications that have arrived. Do not wait for any. Raise Unavailable if the connection is lost."""
    received = []
    with translate_errors(), connection.lock:
        connection.pgconn.consume_input()
        while notification := connection.pgconn.notifies():
            received.append(notification.relname.decode())
    for channel in received:
        channels[channel]()
