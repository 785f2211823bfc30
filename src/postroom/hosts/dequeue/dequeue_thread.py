"""A thread that takes messages from memory and passes them to the service of its service class."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.service import BatchingService, Outcome, Service, ThreadConnections
from postroom.messagebox.queues import ClaimedMessage, ScheduledRetry
from postroom.processes.backoff import Backoff

_BACKOFF = Backoff(first=1.0, longest=256.0)
_log = logging.getLogger(__name__)


#: Returns messages to process together with this one, up to a number. Does not wait.
TakeMore = Callable[[ClaimedMessage, int], list[ClaimedMessage]]


class DequeueThread:
    """One of the threads of a service class. ``take`` returns its next message, or None at the end. ``hand_over`` is
    called with each message that was handled alone.

    If the service can process several messages together, it is also ``batching``, and ``take_more`` returns them.
    """

    def __init__(
        self,
        name: str,
        *,
        take: Callable[[], ClaimedMessage | None],
        hand_over: Callable[[ClaimedMessage], None],
        service: Service,
        completer: Completer,
        connections: ThreadConnections,
        batching: BatchingService | None = None,
        take_more: TakeMore | None = None,
    ) -> None:
        #: The messages in progress, all of one service.
        self.current: Sequence[ClaimedMessage] = ()
        #: The number of messages that were handled, the seconds that it took, and how long they had waited before.
        self.handled, self.handling_seconds, self.waiting_seconds = 0, 0.0, 0.0
        self._batching = batching
        self._take_more = take_more
        self._take = take
        self._hand_over = hand_over
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
        take, handle, store, hand_over = self._take, self._service.handle, self._completer.store, self._hand_over
        while (claimed := take()) is not None:
            if self._batching is not None and (more := self._fill_batch(claimed)):
                self._handle_batch(self._batching, [claimed, *more])
                continue
            self.current = (claimed,)
            started = time.perf_counter()
            try:
                outcome = handle(claimed, self._connections)
            except Exception as error:
                outcome = _retry_after_defect(claimed, error)
            self.handling_seconds += time.perf_counter() - started
            self.handled, self.waiting_seconds = self.handled + 1, self.waiting_seconds + claimed.age
            self.current = ()
            store(claimed, outcome)
            hand_over(claimed)
        self._connections.close()

    def _fill_batch(self, claimed: ClaimedMessage) -> list[ClaimedMessage]:
        assert self._batching is not None
        assert self._take_more is not None
        limit = self._batching.get_batch_limit(claimed)
        return self._take_more(claimed, limit - 1) if limit > 1 else []

    def _handle_batch(self, batching: BatchingService, batch: Sequence[ClaimedMessage]) -> None:
        self.current = batch
        started = time.perf_counter()
        outcomes: Sequence[Outcome]
        try:
            outcomes = batching.handle_batch(batch, self._connections)
        except Exception as error:
            outcomes = [_retry_after_defect(claimed, error) for claimed in batch]
        # All messages of a batch take as long as the batch.
        self.handling_seconds += (time.perf_counter() - started) * len(batch)
        self.handled += len(batch)
        self.waiting_seconds += sum(claimed.age for claimed in batch)
        self.current = ()
        for claimed, outcome in zip(batch, outcomes, strict=True):
            self._completer.store(claimed, outcome)


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
