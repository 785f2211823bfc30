"""Ordered delivery: the messages of one instance are handled one after the other.

``OrderedWorkBuffer`` gives out a message of an instance when the outcome of its predecessor is stored. A message of an
ordered send port follows as soon as its predecessor is sent, and outcomes are stored in groups: after a crash, messages
that were sent already are sent again, in order. If the predecessor failed, ``OrderedService`` releases the messages
that were claimed with it, and the MessageBox keeps the order from there on
(claim_ordered_messages).
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
#: The tasks of messages that share their instance with others.
_SHARED_INSTANCE = (QueueTask.JOIN_INSTANCE, QueueTask.DELIVER_IN_ORDER)


def shares_instance(message: ClaimedMessage) -> bool:
    """Return True if other messages of the same instance wait for this one."""
    return message.task in _SHARED_INSTANCE


class OrderedWorkBuffer(WorkBuffer):
    """A ``WorkBuffer`` with a queue of blocked messages for each instance that has a message in progress."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._blocked: dict[uuid.UUID, deque[ClaimedMessage]] = {}
        self._instance_ids: dict[int, uuid.UUID] = {}
        self._blocked_count = 0

    @property
    def ahead(self) -> int:
        # Slow ports fill the memory queue. Then only the first message of each port is claimed: the others continue.
        return super().ahead if self._blocked_count < 2 * self._half else 1

    def put(self, claimed: Sequence[ClaimedMessage], generation: int) -> bool:
        with self._lock:
            if self._paused or self._generation != generation:
                return False
            self._add_unfinished(claimed)
            ready = []
            for message in claimed:
                if shares_instance(message):
                    self._instance_ids[message.seq] = message.instance_id
                    if message.instance_id in self._blocked:
                        self._blocked[message.instance_id].append(message)
                        self._blocked_count += 1
                        continue
                    self._blocked[message.instance_id] = deque()
                ready.append(message)
            self._enqueue(ready)
            return True

    def hand_over(self, handled: ClaimedMessage) -> None:
        # The outcome of a delivery in order is stored later, and in the order in which outcomes are reported.
        if handled.task == QueueTask.DELIVER_IN_ORDER:
            with self._lock:
                self._queue_next(handled.seq)

    def finish(self, seqs: Sequence[int]) -> None:
        with self._lock:
            for seq in seqs:
                self._queue_next(seq)
        super().finish(seqs)

    def _queue_next(self, seq: int) -> None:
        """Queue the message that was blocked by this one, if any. Called under the lock."""
        instance_id = self._instance_ids.pop(seq, None)
        if instance_id is None:
            return
        blocked = self._blocked[instance_id]
        if blocked:
            self._blocked_count -= 1
            self._enqueue([blocked.popleft()])
        else:
            del self._blocked[instance_id]

    def _count_blocked(self) -> int:
        return self._blocked_count

    def _drop_blocked(self, dropped: Sequence[ClaimedMessage]) -> list[ClaimedMessage]:
        blocked = [message for queue in self._blocked.values() for message in queue]
        for message in (*dropped, *blocked):
            self._instance_ids.pop(message.seq, None)
        # A message that a thread is working on still blocks the next messages of its instance.
        self._blocked = {instance_id: deque() for instance_id in self._instance_ids.values()}
        self._blocked_count = 0
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
        if not shares_instance(claimed):
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
