"""Claims messages of one service class and adds them to the buffer that its threads take messages from."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence

from postroom.clock import Clock
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.storage.copy_rows import QueueTask

_START_SECONDS = 1.0


class QueueClaimer:
    """Claims batches over one connection, one claim at a time.

    A claim whose answer was lost, or came too late, is released before the next claim, or by ``release_unconfirmed``
    if there may be none for a long time.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        host_instance: int,
        service_class: ServiceClass,
        service: Service,
        buffer: WorkBuffer,
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._host_instance = host_instance
        self._service_class = int(service_class)
        self._service = service
        self._buffer = buffer
        self._clock = clock
        self._unconfirmed_claim: uuid.UUID | None = None
        # By priority, the number after the last message of a full claim: the next claim starts there. Messages with
        # lower numbers may be released or become due, so these are forgotten now and then.
        self._starts: dict[int, int] = {}
        self._starts_until = 0.0

    def claim(self, capacity: int, generation: int, *, limit: int) -> int:
        """Claim up to ``limit`` messages. Return their number. The caller has reserved ``capacity``, which is not less,
        and which is released."""
        try:
            claimed = self._dequeue(limit)
            if self._buffer.put(claimed, generation):
                self._unconfirmed_claim = None
            return len(claimed)
        finally:
            self._buffer.release_capacity(capacity)

    def release_unconfirmed(self) -> None:
        """Release the messages of the last claim if no thread got them."""
        if self._unconfirmed_claim is not None:
            self._queues.release(self._connection.get(), self._unconfirmed_claim)
            self._unconfirmed_claim = None

    def close(self) -> None:
        self._connection.close()

    def _dequeue(self, limit: int) -> list[ClaimedMessage]:
        self.release_unconfirmed()
        connection = self._connection.get()
        self._unconfirmed_claim = uuid.uuid4()
        excluded = self._buffer.excluded_services
        claimed = self._queues.dequeue(
            connection,
            claim_id=self._unconfirmed_claim,
            host_instance=self._host_instance,
            service_class=self._service_class,
            limit=limit,
            excluded=excluded,
            ahead=self._buffer.ahead,
            starts=self._get_starts(),
            now=self._clock() if self._clock else None,
        )
        self._set_starts(claimed, limit, is_complete=not excluded)
        if claimed:
            self._service.prepare(connection, claimed)
        return claimed

    def _get_starts(self) -> Mapping[int, int] | None:
        if time.monotonic() >= self._starts_until:
            self._starts = {}
            self._starts_until = time.monotonic() + _START_SECONDS
        return self._starts or None

    def _set_starts(self, claimed: Sequence[ClaimedMessage], limit: int, *, is_complete: bool) -> None:
        unordered = [message for message in claimed if message.task != QueueTask.DELIVER_IN_ORDER]
        if not is_complete or len(unordered) < limit:
            self._starts = {}
            return
        for message in unordered:
            self._starts[message.priority] = message.seq + 1
