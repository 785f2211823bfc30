"""Takes messages from memory and hands them to the service that they are for."""

from __future__ import annotations

import logging
import threading
import time

from postroom.hosts.completer import Completer
from postroom.hosts.outcomes import Verdict
from postroom.hosts.service import Service
from postroom.hosts.thread_connections import ThreadConnections
from postroom.hosts.work_in_hand import WorkInHand

_MOST_AT_A_TIME = 16
_QUICK_SECONDS = 0.001
_log = logging.getLogger(__name__)


class DequeueThread:
    """One of the threads of a service class."""

    def __init__(
        self, name: str, *, work: WorkInHand, service: Service, completer: Completer, connections: ThreadConnections
    ) -> None:
        self._work = work
        self._service = service
        self._completer = completer
        self._connections = connections
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Waits for its end; False if it has not ended in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        handle, store = self._service.handle, self._completer.store
        at_a_time = 1
        while taken := self._work.take_some(at_a_time):
            started = time.monotonic()
            for claimed in taken:
                try:
                    outcome = handle(claimed, self._connections)
                except Exception:
                    # A service answers for its messages; what it lets through is a defect of its own.
                    _log.exception("message %s was not handled; it goes back into the queue", claimed.message_id)
                    outcome = Verdict.RELEASE
                store(claimed, outcome)
            # A thread that is quick takes more at a time, because every look costs all threads a moment. One that is
            # slow takes one, so that nothing waits behind it that another thread could deliver.
            quick = time.monotonic() - started < _QUICK_SECONDS * len(taken)
            at_a_time = min(2 * at_a_time, _MOST_AT_A_TIME) if quick else 1
        self._connections.close()
