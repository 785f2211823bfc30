"""Claims batches over one connection, and puts them where the threads take them from."""

from __future__ import annotations

import uuid

from postroom.clock import Clock
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.configuration import ServiceClass
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.queues import ClaimedMessage, HostQueues


class Claimer:
    """One claim at a time. A claim whose answer was lost, or came too late, is given back before the next one."""

    def __init__(
        self,
        *,
        connect: Connect,
        queues: HostQueues,
        host_instance: int,
        service_class: ServiceClass,
        service: Service,
        work: WorkInHand,
        in_order: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._queues = queues
        self._host_instance = host_instance
        self._service_class = int(service_class)
        self._service = service
        self._work = work
        self._in_order = in_order
        self._clock = clock
        self._in_doubt: uuid.UUID | None = None

    def claim(self, room: int, generation: int) -> int:
        """Claim as many messages as there is reserved room for. Return how many were claimed."""
        try:
            claimed = self._dequeue(room)
            if self._work.put(claimed, generation):
                self._in_doubt = None
            return len(claimed)
        finally:
            self._work.release_room(room)

    def close(self) -> None:
        self._connection.close()

    def _dequeue(self, limit: int) -> list[ClaimedMessage]:
        connection = self._connection.get()
        if self._in_doubt is not None:
            # Nobody has seen its messages.
            self._queues.release(connection, self._in_doubt)
        self._in_doubt = uuid.uuid4()
        claimed = self._queues.dequeue(
            connection,
            claim_id=self._in_doubt,
            host_instance=self._host_instance,
            service_class=self._service_class,
            limit=limit,
            in_order=self._in_order,
            now=self._clock() if self._clock else None,
        )
        if claimed:
            self._service.prepare(connection, claimed)
        return claimed
