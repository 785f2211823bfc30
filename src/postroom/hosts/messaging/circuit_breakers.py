"""Circuit breakers: a send port whose receiver is dead is paused, and tried again with single messages.

A host instance counts the failures of each port that came one after the other. When they exceed the limits of the port,
it opens the circuit breaker for all instances of the host (messagebox/circuits.py). A message that is dequeued while
the breaker is open goes back without an attempt, unless it is the probe.
"""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import timedelta

from postroom.application import CircuitBreaker
from postroom.errors import MessageBoxUnavailable, is_environment_error
from postroom.messagebox import circuits
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage
from postroom.ports.send_ports import SendPort

_log = logging.getLogger(__name__)


class CircuitBreakers:
    """The circuit breakers of the ports of a host instance. Several threads use it."""

    def __init__(self, host_id: int) -> None:
        self._host_id = host_id
        self._lock = threading.Lock()
        # By the bytes of the port id: the number of failures since the last success, and the time of the first.
        self._failures: dict[bytes, tuple[int, float]] = {}
        # The number of the probe of each port whose breaker is open.
        self._probes: dict[bytes, int] = {}

    def refresh(self, connection: Connection, services: Iterable[bytes]) -> None:
        """Read the states of the circuit breakers of these ports."""
        ids = [uuid.UUID(bytes=service) for service in services]
        found = circuits.read_open_circuits(connection, ports=ids, host_id=self._host_id)
        with self._lock:
            for port_id in ids:
                if port_id in found:
                    self._probes[port_id.bytes] = found[port_id].probe_seq
                else:
                    self._probes.pop(port_id.bytes, None)

    def is_paused(self, claimed: ClaimedMessage) -> bool:
        """Return True if the breaker of the message's port is open, and the message is not its probe."""
        return claimed.service in self._probes and self._probes.get(claimed.service) != claimed.seq

    def record_success(self, port: SendPort, connect: Callable[[], Connection]) -> None:
        """Forget the failures of the port. Close its breaker if it is open: its receiver is alive.

        ``connect`` returns a connection, which is rarely needed.
        """
        service = port.port_id.bytes
        with self._lock:
            self._failures.pop(service, None)
            was_open = self._probes.pop(service, None) is not None
        if was_open:
            circuits.close_circuit(connect(), port.port_id, self._host_id)
            _log.warning("send port %s continues: its receiver accepts messages again", port.name)

    def record_failure(self, port: SendPort, connect: Callable[[], Connection], error: Exception) -> bool:
        """Count a failed attempt, and open the breaker if it is one too many.

        Return True if the breaker was open: the attempt was a probe, and is not counted for the message. Failures that
        the message caused say nothing about the receiver.
        """
        assert port.settings.circuit_breaker is not None
        if not is_environment_error(error) or isinstance(error, MessageBoxUnavailable):
            return False
        service, now = port.port_id.bytes, time.monotonic()
        with self._lock:
            is_open = service in self._probes
            count, since = self._failures.get(service, (0, now))
            if not is_open:
                self._failures[service] = count + 1, since
        if is_open:
            circuits.record_failed_probe(connect(), port.port_id, self._host_id, str(error))
            return True
        if not _is_exceeded(port.settings.circuit_breaker, count + 1, now - since):
            return False
        circuits.open_circuit(
            connect(),
            port.port_id,
            self._host_id,
            opened_by=f"{platform.node()}, process {os.getpid()}",
            reason=str(error),
            probe_interval=timedelta(seconds=port.settings.circuit_breaker.probe_interval),
        )
        with self._lock:
            self._failures.pop(service, None)
            self._probes[service] = 0
        _log.warning("send port %s is paused: %s", port.name, error)
        return False


def _is_exceeded(breaker: CircuitBreaker, failures: int, seconds: float) -> bool:
    return failures >= breaker.failures and seconds >= breaker.period
