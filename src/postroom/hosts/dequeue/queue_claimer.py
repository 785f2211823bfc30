"""Claims messages of one service class and adds them to the buffer that its threads take messages from."""

from __future__ import annotations

import uuid

from postroom.clock import Clock
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.queues import ClaimedMessage, HostQueues


class QueueClaimer:
    """Claims batches over one connection, one claim at a time.

    A claim whose answer was lost, or came too late, is released before the next claim.
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
        in_order: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._host_instance = host_instance
        self._service_class = int(service_class)
        self._service = service
        self._buffer = buffer
        self._in_order = in_order
        self._clock = clock
        self._unconfirmed_claim: uuid.UUID | None = None

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

    def close(self) -> None:
        self._connection.close()

    def _dequeue(self, limit: int) -> list[ClaimedMessage]:
        connection = self._connection.get()
        if self._unconfirmed_claim is not None:
            # No thread got its messages.
            self._queues.release(connection, self._unconfirmed_claim)
        self._unconfirmed_claim = uuid.uuid4()
        claimed = self._queues.dequeue(
            connection,
            claim_id=self._unconfirmed_claim,
            host_instance=self._host_instance,
            service_class=self._service_class,
            limit=limit,
            in_order=self._in_order,
            excluded=self._buffer.excluded_services,
            ahead=self._buffer.ahead,
            now=self._clock() if self._clock else None,
        )
        if claimed:
            self._service.prepare(connection, claimed)
        return claimed
