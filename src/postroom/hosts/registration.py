"""The liveness of a host instance: a row in the MessageBox, and a session lock on the number of the instance.

PostgreSQL releases the lock when the session ends. That is when the process ends, or when no heartbeat arrives for 8 s:
a frozen process keeps its connection, but sends nothing.

The connection that holds the lock also listens for wake-ups, so its loss is detected at once. After a loss the
instance processes no message until it has its lock again.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from postroom.errors import PostroomError, Unavailable
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connect, Connection, get_backend_pid
from postroom.messagebox.coordination.notifications import (
    CONFIGURATION_CHANNEL,
    Listener,
    wake_up_channel,
)
from postroom.messagebox.coordination.running_processes import (
    ProcessKind,
    deregister_process,
    register_again,
    register_process,
)
from postroom.messagebox.queues import HostQueues
from postroom.processes.background_loop import BackgroundLoop

_log = logging.getLogger(__name__)

_PROBES = 3
#: A lock counts as confirmed for this time after the heartbeat is due.
_CONFIRMED_SECONDS = 5.0

#: The host must detect a lost connection before the server ends the session: the host takes 6 s, the server 8 s.
LOCK_SOCKET = {
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "6000",
}


class PausableService(Protocol):
    """What works only while the instance has its lock: a subservice, or the orchestrations."""

    @property
    def unfinished_seqs(self) -> list[int]: ...
    def pause(self) -> None: ...
    def unpause(self) -> None: ...
    def wake(self) -> None: ...


class Registration:
    """The row and the lock of one host instance. Call ``register`` once. The loop keeps both until ``deregister``."""

    def __init__(
        self,
        *,
        connect: Connect,
        connect_other: Connect,
        host: Host,
        queues: HostQueues,
        heartbeat: timedelta,
    ) -> None:
        self._connect_other = connect_other
        self._host = host
        self._queues = queues
        self._heartbeat = heartbeat.total_seconds()
        #: Wake-ups go to them, and they are paused while the lock is lost. Set before the loop starts.
        self.subservices: Sequence[PausableService] = ()
        #: Called after a change of the configuration, and when changes may have been missed.
        self.on_configuration_change: Callable[[], None] = lambda: None
        #: Called after the instance was declared dead and is registered again. Its waiting requests were removed.
        self.on_declared_dead: Callable[[], None] = lambda: None
        channels = {
            wake_up_channel(host.name): self.wake,
            CONFIGURATION_CHANNEL: lambda: self.on_configuration_change(),
        }
        self._listener = Listener(connect, channels, prepare=self._acquire_lock)
        self._pausing = threading.Lock()
        #: True while an operator has stopped the host. Set before the loop starts, then by ``set_stopped``.
        self.is_stopped = False
        self._session = 0
        self._heartbeat_at = 0.0
        self._interrupt_reader, self._interrupt_writer = -1, -1
        self.host_instance = 0
        #: The number of times that the lock was lost and acquired again.
        self.regained_locks = 0
        self.loop = BackgroundLoop("registration", self._step, interrupt=self._interrupt)

    @property
    def has_lock(self) -> bool:
        """True if the instance has its lock, and the MessageBox has confirmed it a moment ago."""
        return self._listener.connection is not None and time.monotonic() < self._heartbeat_at + _CONFIRMED_SECONDS

    def register(self) -> int:
        """Insert the row and acquire the lock. Return the number of the instance.

        Raise Unavailable if a session lock would not last on this connection.
        """
        self._listener.get()
        self._interrupt_reader, self._interrupt_writer = os.pipe()
        return self.host_instance

    def deregister(self) -> None:
        """Release all claims of the instance, and delete its row."""
        os.close(self._interrupt_reader)
        os.close(self._interrupt_writer)
        if self._listener.connection is not None:
            with suppress(PostroomError):
                self._queues.release_claims(self._listener.connection, self.host_instance)
                deregister_process(self._listener.connection, self.host_instance)
            self._listener.close()

    def _interrupt(self) -> None:
        os.write(self._interrupt_writer, b"x")

    def _step(self) -> float:
        if self._listener.connection is None:
            self._listener.get()
            self.regained_locks += 1
            with self._pausing:
                self._unpause(self.subservices)
            self.on_configuration_change()
        try:
            self._watch(self._listener.connection)
            return 0.0
        except BaseException:
            with self._pausing:
                for subservice in self.subservices:
                    subservice.pause()
                self._listener.close()
            raise

    def _watch(self, connection: Connection | None) -> None:
        """Wait for a wake-up, for the heartbeat, or for the end of the connection."""
        assert connection is not None
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._interrupt_reader, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(max(0.0, self._heartbeat_at - time.monotonic()) * 1000)}
        if connection.fileno() in ready:
            self._listener.get()
        if time.monotonic() >= self._heartbeat_at:
            check_session(connection, self._session)
            self._heartbeat_at = time.monotonic() + self._heartbeat

    def wake(self) -> None:
        """Poll the queues now: there may be messages."""
        for subservice in self.subservices:
            subservice.wake()

    def add(self, subservice: PausableService) -> None:
        """Add a subservice that has started. It works as long as the instance has its lock."""
        with self._pausing:
            self.subservices = [*self.subservices, subservice]
            self._unpause([subservice])

    def set_stopped(self, connection: Connection, stopped: bool) -> None:
        """Start no message while an operator has stopped the host. Messages in progress are finished."""
        with self._pausing:
            if stopped == self.is_stopped:
                return
            if not stopped:
                self.is_stopped = False
                self._unpause(self.subservices)
                _log.info("the host %s is started", self._host.name)
                return
            for subservice in self.subservices:
                subservice.pause()
            unfinished = [seq for subservice in self.subservices for seq in subservice.unfinished_seqs]
            self._queues.release_claims(connection, self.host_instance, unfinished)
            # Last: after an error the caller tries again, and the claims must be released.
            self.is_stopped = True
            _log.info("the host %s is stopped", self._host.name)

    def _unpause(self, subservices: Iterable[PausableService]) -> None:
        """Let subservices work, if the instance has its lock and the host is not stopped. Called under the lock."""
        if self._listener.connection is not None and not self.is_stopped:
            for subservice in subservices:
                subservice.unpause()

    def _acquire_lock(self, connection: Connection) -> None:
        """Register the instance, or acquire its lock again."""
        if self.host_instance:
            self._register_again(connection)
        else:
            with self._connect_other() as other:
                check_own_session(connection, other)
            self.host_instance = register_process(connection, self._host.host_id, ProcessKind.HOST)
        self._session = get_backend_pid(connection)

    def _register_again(self, connection: Connection) -> None:
        was_dead = register_again(connection, self._host.host_id, self.host_instance, last_session=self._session)
        unfinished = [seq for subservice in self.subservices for seq in subservice.unfinished_seqs]
        released = self._queues.release_claims(connection, self.host_instance, unfinished)
        if was_dead:
            self.on_declared_dead()
        _log.info("host instance %d has its lock again; %d messages were released", self.host_instance, released)


def check_own_session(connection: Connection, other: Connection) -> None:
    """Raise Unavailable if ``connection`` has no session of its own. ``other`` is a second, idle connection.

    Behind a pooler in transaction mode an idle connection has no session. A transaction on ``other`` then gets the
    session that ``connection`` used last, or the next statement on ``connection`` gets a different session.
    """
    session = get_backend_pid(connection)
    with other.transaction():
        if get_backend_pid(other) == session:
            raise _transaction_pooler_error()
        for _ in range(_PROBES):
            check_session(connection, session)
    check_session(connection, session)


def check_session(connection: Connection, session: int) -> None:
    """Raise Unavailable if a statement on ``connection`` does not run in this session."""
    if get_backend_pid(connection) != session:
        raise _transaction_pooler_error()


def _transaction_pooler_error() -> Unavailable:
    return Unavailable(
        "This connection to the MessageBox has no session of its own.",
        why="It goes through a pooler in transaction mode, where the session lock of a host instance does not last.",
        hint="Use a URL that connects hosts to PostgreSQL directly, or to a pooler in session mode.",
    )
