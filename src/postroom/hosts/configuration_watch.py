"""Applies changes of the configuration to a running host instance (service class ``caching``).

Every change of the configuration increases the routing version and notifies all processes after its commit. So a
running instance has the change within a second. Send ports need no notice: the claim of a message returns the routing
version, and the ports are read again before the message is sent.
"""

from __future__ import annotations

from collections.abc import Callable

from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.coordination.running_processes import read_routing_version, report_configuration
from postroom.processes.background_loop import BackgroundLoop

#: Files, such as certificates, change without a notification.
_WITHOUT_NOTIFICATION = 10.0
_WHILE_UNSETTLED = 1.0


class ConfigurationWatch:
    """Calls ``apply`` after each change, and reports that this instance has taken it. ``apply`` returns False if it
    has to be called again soon, for example because another process still uses a port."""

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
        is_settled = self._apply(connection)
        report_configuration(connection, self._host_instance, version)
        return _WITHOUT_NOTIFICATION if is_settled else _WHILE_UNSETTLED
