"""Ordered delivery: the messages of one instance are handled one after the other.

``OrderedWorkBuffer`` gives out a message when the outcome of its predecessor is stored. If the predecessor failed,
``OrderedService`` releases the messages that were claimed with it, and the MessageBox keeps the order from there on
(dequeue_in_order).
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence

from postroom.hosts.dequeue.service import Disposition, Outcome, Service, ThreadConnections
from postroom.hosts.dequeue.work_buffer import WorkBuffer
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.storage.copy_rows import QueueTask

_SUCCESSES = (Disposition.COMPLETE, Disposition.FINISHED)
_MAX_INTERRUPTED = 10_000


class OrderedWorkBuffer(WorkBuffer):
    """A ``WorkBuffer`` with a queue of blocked messages for each instance that has a message in progress."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._blocked: dict[uuid.UUID, deque[ClaimedMessage]] = {}
        self._instance_ids: dict[int, uuid.UUID] = {}

    def put(self, claimed: Sequence[ClaimedMessage], generation: int) -> bool:
        with self._lock:
            if self._paused or self._generation != generation:
                return False
            ready = []
            for message in claimed:
                self._unfinished.add(message.seq)
                if message.task == QueueTask.JOIN_INSTANCE:
                    self._instance_ids[message.seq] = message.instance_id
                    if message.instance_id in self._blocked:
                        self._blocked[message.instance_id].append(message)
                        continue
                    self._blocked[message.instance_id] = deque()
                ready.append(message)
            self._enqueue(ready)
            return True

    def finish(self, seqs: Sequence[int]) -> None:
        with self._lock:
            for seq in seqs:
                instance_id = self._instance_ids.pop(seq, None)
                if instance_id is None:
                    continue
                blocked = self._blocked[instance_id]
                if blocked:
                    self._enqueue([blocked.popleft()])
                else:
                    del self._blocked[instance_id]
        super().finish(seqs)

    def _drop_blocked(self, dropped: Sequence[ClaimedMessage]) -> list[ClaimedMessage]:
        blocked = [message for queue in self._blocked.values() for message in queue]
        for message in (*dropped, *blocked):
            self._instance_ids.pop(message.seq, None)
        # A message that a thread is working on still blocks the next messages of its instance.
        self._blocked = {instance_id: deque() for instance_id in self._instance_ids.values()}
        return blocked


class OrderedService:
    """A service that releases the rest of a claim for an instance after one of its messages failed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # The claim that failed, by instance. Only one thread at a time has messages of an instance.
        self._interrupted: dict[uuid.UUID, uuid.UUID] = {}

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        self._service.prepare(connection, claimed)

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        if claimed.task != QueueTask.JOIN_INSTANCE:
            return self._service.handle(claimed, connections)
        if self._interrupted.get(claimed.instance_id) == claimed.claim_id:
            return Disposition.RELEASE
        self._interrupted.pop(claimed.instance_id, None)
        outcome = None
        try:
            outcome = self._service.handle(claimed, connections)
        finally:
            if outcome not in _SUCCESSES:
                self._interrupt(claimed)
        return outcome

    def close(self) -> None:
        self._service.close()

    def _interrupt(self, claimed: ClaimedMessage) -> None:
        while len(self._interrupted) >= _MAX_INTERRUPTED:  # drop instances that never came back
            self._interrupted.pop(next(iter(self._interrupted)), None)
        self._interrupted[claimed.instance_id] = claimed.claim_id
