"""The work of a host instance for one service class: a poller, dequeue threads and a completer."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from postroom.application import Handler
from postroom.clock import Clock
from postroom.hosts.dequeue.completer import Completer
from postroom.hosts.dequeue.poller import GetThrottle, Poller, QueueClaimer
from postroom.hosts.dequeue.processing import Disposition, MessageProcessor, Outcome, ThreadConnections, WaitingSend
from postroom.hosts.dequeue.work_buffer import SentMessages, WorkBuffer
from postroom.messagebox.configuration.hosts import Dequeuing
from postroom.messagebox.connection import Connect
from postroom.messagebox.queues import ClaimedMessage, HostQueues, ScheduledRetry
from postroom.processes.backoff import Backoff
from postroom.throttling.process_load import PROCESSORS

_log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=1.0, longest=256.0)
#: How many messages for each processor may be sent at a time without a thread each: half of those in process.
_SLOTS = 500
_SUCCESSES = (Disposition.COMPLETE, Disposition.FINISHED)


class Subservice:
    """One service class in a host instance. It starts paused, and works after ``unpause``.

    Messages that share an instance are handled one after the other.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        host_instance: int,
        dequeuing: Dequeuing,
        service: MessageProcessor,
        memory_queue: int,
        get_throttle: GetThrottle,
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._queues = queues
        self._dequeuing = dequeuing
        self._service = service
        self._buffer = WorkBuffer(
            memory_queue, dequeuing.dequeue_threads, service.get_limits, slots=_SLOTS * PROCESSORS
        )
        self.poller = Poller(
            dequeuing,
            self._buffer,
            lambda: QueueClaimer(
                connect=connect,
                queues=queues,
                host_instance=host_instance,
                service_class=dequeuing.service_class,
                service=service,
                buffer=self._buffer,
                clock=clock,
            ),
            get_throttle,
        )
        self._completer = Completer(
            connect=connect,
            queues=queues,
            buffer=self._buffer,
            on_scheduled=self.poller.wake_if_due_within,
            on_unblocked=self.poller.wake,
            clock=clock,
        )
        self._threads: list[DequeueThread] = []

    def start(self) -> None:
        self._completer.loop.start()
        self._start_threads(self._dequeuing.dequeue_threads)
        self.poller.start()

    def set_dequeuing(self, dequeuing: Dequeuing) -> None:
        """Change the polling interval and the number of threads. Surplus threads end after their current message. Not
        safe for concurrent calls."""
        before = self._dequeuing
        if dequeuing == before:
            return
        self._dequeuing = dequeuing
        self.poller.interval = dequeuing.polling_interval
        self._buffer.set_threads(dequeuing.dequeue_threads)
        self._start_threads(dequeuing.dequeue_threads - before.dequeue_threads)
        self.poller.wake()
        _log.info(
            "%s: polling every %g s with %d threads",
            dequeuing.service_class,
            dequeuing.polling_interval.total_seconds(),
            dequeuing.dequeue_threads,
        )

    def _start_threads(self, count: int) -> None:
        """Start so many dequeue threads, and as many spare threads."""
        name = self._dequeuing.service_class
        for kind, take in (("", self._buffer.take), ("spare ", self._buffer.take_spare)):
            for _ in range(count):
                thread = DequeueThread(
                    f"{kind}{name} {len(self._threads) + 1}",
                    take=take,
                    buffer=self._buffer,
                    service=self._service,
                    completer=self._completer,
                    connections=ThreadConnections(self._connect, self._queues),
                )
                thread.start()
                self._threads.append(thread)

    def pause(self) -> None:
        """Start no message until ``unpause``. Messages in progress continue."""
        self._buffer.pause()

    def set_handlers(self, handlers: Mapping[bytes, Handler]) -> None:
        """Set the handler of each send port."""
        self._buffer.set_handlers(handlers)

    def unpause(self) -> None:
        self._buffer.unpause()
        self.wake()

    def wake(self) -> None:
        """Poll now: there may be messages."""
        self.poller.wake()

    @property
    def unfinished_seqs(self) -> list[int]:
        """The sequence numbers of the messages that are in progress, or whose outcome is not stored yet."""
        return self._buffer.unfinished_seqs

    @property
    def unfinished_count(self) -> int:
        """The number of messages in memory whose outcome is not stored yet."""
        return self._buffer.unfinished_count

    @property
    def claimed_count(self) -> int:
        """The number of messages that were claimed since the start."""
        return self._buffer.claimed_count

    @property
    def finished_count(self) -> int:
        """The number of messages that are not in memory any more."""
        return self._buffer.finished_count

    @property
    def counts(self) -> Counter[str]:
        """The number of messages by outcome since the start."""
        return self._completer.counts.copy()

    @property
    def handling_time(self) -> tuple[int, float]:
        """The number of messages that were handled since the start, and the sum of the seconds that each took."""
        threads = self._threads
        return sum(thread.handled for thread in threads), sum(thread.handling_seconds for thread in threads)

    @property
    def waiting_seconds(self) -> float:
        """How long the messages that were handled had waited in the queue, in total."""
        return sum(thread.waiting_seconds for thread in self._threads)

    def stop(self, deadline: float) -> None:
        """Stop claiming, and wait until the messages in progress are finished, at most until the deadline."""
        self.poller.stop()
        self._buffer.pause()
        self._buffer.close()
        ended = [thread.join(max(0.0, deadline - time.monotonic())) for thread in self._threads]
        finished = self._buffer.wait_until_finished(max(0.0, deadline - time.monotonic()))
        if not all(ended) or not finished:
            _log.warning("%d messages were still in progress when the host stopped", len(self.unfinished_seqs))
        self._completer.loop.stop()
        self._completer.loop.join(max(1.0, deadline - time.monotonic()))
        self._completer.close()
        self.poller.join(deadline)
        if all(ended):
            self._service.close()


class DequeueThread:
    """One of the threads of a service class. ``take`` returns its next messages from the buffer, or nothing at the
    end."""

    def __init__(
        self,
        name: str,
        *,
        take: Callable[[], Sequence[ClaimedMessage]],
        buffer: WorkBuffer,
        service: MessageProcessor,
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
        take, handle, store, end = self._take, self._handle, self._completer.store, self._buffer.end
        while batch := take():
            started = batch.started if isinstance(batch, SentMessages) else time.perf_counter()
            outcomes = handle(batch)
            if isinstance(outcomes, WaitingSend):
                self._wait(batch, outcomes, started)
                continue
            # All messages of a batch take as long as the batch.
            self.handling_seconds += (time.perf_counter() - started) * len(batch)
            self.handled += len(batch)
            for claimed, outcome in zip(batch, outcomes, strict=True):
                self.waiting_seconds += claimed.age
                store(claimed, outcome)
            for refused in end(batch, is_success=outcomes[0] in _SUCCESSES):
                store(refused, Disposition.RELEASE)
        self._connections.close()

    def _handle(self, batch: Sequence[ClaimedMessage]) -> Sequence[Outcome] | WaitingSend:
        """Process messages, or finish those whose receiver has answered."""
        try:
            if isinstance(batch, SentMessages):
                return batch.send.finish(self._connections)
            return self._service.handle(batch, self._connections)
        except Exception as error:
            return [_retry_after_defect(claimed, error) for claimed in batch]

    def _wait(self, batch: Sequence[ClaimedMessage], send: WaitingSend, started: float) -> None:
        """Let messages wait for their receiver without this thread."""
        sent = SentMessages(batch)
        sent.send, sent.started = send, started
        self._buffer.wait(sent)
        send.start(partial(self._buffer.resume, sent))


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
