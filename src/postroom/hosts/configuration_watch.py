"""The loop with which a host instance applies changes of the configuration."""

from __future__ import annotations

from collections.abc import Callable

from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.coordination.running_processes import read_routing_version, report_configuration
from postroom.processes.background_loop import BackgroundLoop

#: Files, such as certificates, change without a notification.
_APPLY_SECONDS = 10.0
_RETRY_SECONDS = 1.0


class ConfigurationWatch:
    """Applies changes of the configuration.

    Every change increases the routing version and notifies all processes after its commit, so a running instance has
    it within a second. Send ports need no notice: the claim of a message returns the routing version, and the ports are
    read again before the message is sent. ``apply`` returns False if it has to be called again soon, for example
    because another process still uses a port.
    """

    def __init__(self, connect: Connect, host_instance: int, apply: Callable[[Connection], bool]) -> None:
        self._connection = LazyConnection(connect)
        self._host_instance = host_instance
        self._apply = apply
        self.loop = BackgroundLoop("configuration", self._step)

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> float:
        connection = self._connection.get()
        version = read_routing_version(connection)
        is_complete = self._apply(connection)
        report_configuration(connection, self._host_instance, version)
        return _APPLY_SECONDS if is_complete else _RETRY_SECONDS
