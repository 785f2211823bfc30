"""A thread that takes messages from memory and passes them to the service of its service class."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.service import Disposition, Outcome, Service, ThreadConnections
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.queues import ClaimedMessage, ScheduledRetry
from postroom.processes.backoff import Backoff

_BACKOFF = Backoff(first=1.0, longest=256.0)
_SUCCESSES = (Disposition.COMPLETE, Disposition.FINISHED)
_log = logging.getLogger(__name__)


class DequeueThread:
    """One of the threads of a service class. ``take`` returns its next messages from the buffer, or nothing at the
    end."""

    def __init__(
        self,
        name: str,
        *,
        take: Callable[[], Sequence[ClaimedMessage]],
        buffer: WorkBuffer,
        service: Service,
        completer: Completer,
        connections: ThreadConnections,
    ) -> None:
        #: The number of messages that were handled, the seconds that it took, and how long they had waited before.
        self.handled, self.handling_seconds, self.waiting_seconds = 0, 0.0, 0.0
        self._take = take
        self._buffer = buffer
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
        take, handle, store, end = self._take, self._service.handle, self._completer.store, self._buffer.end
        while batch := take():
            started = time.perf_counter()
            outcomes: Sequence[Outcome]
            try:
                outcomes = handle(batch, self._connections)
            except Exception as error:
                outcomes = [_retry_after_defect(claimed, error) for claimed in batch]
            # All messages of a batch take as long as the batch.
            self.handling_seconds += (time.perf_counter() - started) * len(batch)
            self.handled += len(batch)
            for claimed, outcome in zip(batch, outcomes, strict=True):
                self.waiting_seconds += claimed.age
                store(claimed, outcome)
            for refused in end(batch, is_success=outcomes[0] in _SUCCESSES):
                store(refused, Disposition.RELEASE)
        self._connections.close()


def _retry_after_defect(claimed: ClaimedMessage, error: Exception) -> ScheduledRetry:
    """Log the error, and return a retry with a growing delay. An exception that a service lets through is a defect of
    the service, so an immediate retry would fail again."""
    _log.error(
        "message %s could not be handled and will be retried",
        claimed.message_id,
        exc_info=error,
        extra=claimed.log_ids,
    )
    return ScheduledRetry(
        delay=timedelta(seconds=_BACKOFF.delay(claimed.attempt + 1)),
        code="UNEXPECTED",
        description=f"The host could not handle the message.\n{type(error).__name__}: {error}\n"
        "The traceback is in the host's log.",
    )
