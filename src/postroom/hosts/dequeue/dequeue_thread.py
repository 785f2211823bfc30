"""Takes messages from memory and hands them to the service that they are for."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from postroom.backoff import Backoff
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.thread_connections import ThreadConnections
from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.queues import ClaimedMessage, Retry

_BACKOFF = Backoff(first=1.0, longest=256.0)
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
        take, handle, store = self._work.take, self._service.handle, self._completer.store
        while (claimed := take()) is not None:
            try:
                outcome = handle(claimed, self._connections)
            except Exception as error:
                _log.exception("message %s was not handled; it is tried again later", claimed.message_id)
                outcome = _later(claimed, error)
            store(claimed, outcome)
        self._connections.close()


def _later(claimed: ClaimedMessage, error: Exception) -> Retry:
    """A service answers for its messages; what it lets through is a defect of its own. The message is kept, and comes
    back, but not at once: it would be back before anybody could do something about it, again and again."""
    return Retry(
        delay=timedelta(seconds=_BACKOFF.delay(claimed.attempt + 1)),
        code="UNEXPECTED",
        description=f"The host could not handle the message.\n{type(error).__name__}: {error}\n"
        "The traceback is in the host's log.",
    )
