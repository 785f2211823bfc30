"""Wake-ups for hosts: sent after the commit, at most one per host and moment.

A NOTIFY inside a publishing transaction would take a database-wide lock until it commits. A wake-up that is lost
costs nothing but time: every host polls anyway.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from postroom.errors import PostroomError
from postroom.messagebox.connection import Connection

#: A host that was woken this short a time ago is still looking.
_QUIET_SECONDS = 0.02


def channel_of(host_name: str) -> str:
    """The channel that the instances of a host listen on."""
    return f"postroom_{host_name.lower()}"


#: Inside ``hold_wake_ups``: the hosts to wake at its end.
_held: ContextVar[set[str] | None] = ContextVar("held_wake_ups", default=None)


@contextmanager
def hold_wake_ups(connection: Connection) -> Iterator[None]:
    """Keeps wake-ups back until the end, for operations inside one transaction. After an error none is sent."""
    hosts: set[str] = set()
    token = _held.set(hosts)
    try:
        yield
    finally:
        _held.reset(token)
    WakeUp(connection).send(hosts)


class WakeUp:
    """Tells hosts that there is work for them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent: dict[str, float] = {}

    def send(self, hosts: Iterable[str]) -> None:
        """Wakes these hosts, except those that were woken just now."""
        held = _held.get()
        if held is not None:
            held.update(hosts)
            return
        now = time.monotonic()
        due = [host for host in hosts if now - self._sent.get(host, 0.0) > _QUIET_SECONDS]
        for host in due:
            self._sent[host] = now
        if due:
            # The work is committed; that nobody could be woken must not make it look otherwise.
            with suppress(PostroomError):
                self._connection.execute(
                    "SELECT pg_notify(channel, '') FROM unnest(%s::text[]) channel",
                    ([channel_of(host) for host in due],),
                )
