"""A thread that takes messages from memory and passes them to the service of its service class."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from postroom.backoff import Backoff
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.service import Service, ThreadConnections
from postroom.messagebox.queues import ClaimedMessage, ScheduledRetry

_BACKOFF = Backoff(first=1.0, longest=256.0)
_log = logging.getLogger(__name__)


class DequeueThread:
    """One of the threads of a service class. ``take`` returns its next message, or None at the end."""

    def __init__(
        self,
        name: str,
        *,
        take: Callable[[], ClaimedMessage | None],
        service: Service,
        completer: Completer,
        connections: ThreadConnections,
    ) -> None:
        #: The message in progress.
        self.current: ClaimedMessage | None = None
        self._take = take
        self._service = service
        self._completer = completer
        self._connections = connections
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end. Return False after the timeout."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        take, handle, store = self._take, self._service.handle, self._completer.store
        while (claimed := take()) is not None:
            self.current = claimed
            try:
                outcome = handle(claimed, self._connections)
            except Exception as error:
                _log.exception("message %s could not be handled and will be retried", claimed.message_id)
                outcome = _retry_after_defect(claimed, error)
            self.current = None
            store(claimed, outcome)
        self._connections.close()


def _retry_after_defect(claimed: ClaimedMessage, error: Exception) -> ScheduledRetry:
    """Return a retry with a growing delay. An exception that a service lets through is a defect of the service, so an
    immediate retry would fail again."""
    return ScheduledRetry(
        delay=timedelta(seconds=_BACKOFF.delay(claimed.attempt + 1)),
        code="UNEXPECTED",
        description=f"The host could not handle the message.\n{type(error).__name__}: {error}\n"
        "The traceback is in the host's log.",
    )
