"""A service whose messages come in order: after one that did not go well nothing of its instance is handed over."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from postroom.hosts.dequeue.outcomes import Outcome, Verdict
from postroom.hosts.dequeue.service import Service
from postroom.hosts.dequeue.thread_connections import ThreadConnections
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.storage.writing import Task

_DONE = (Verdict.COMPLETE, Verdict.SETTLED)
_REMEMBERED = 10_000


class InOrder:
    """Gives back what was claimed together with a message that has to be tried again, or is suspended, and comes after
    it for the same instance. From there on the MessageBox keeps the order (dequeue_in_order)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # By instance the claim that went wrong. One thread at a time has messages of an instance.
        self._interrupted: dict[uuid.UUID, uuid.UUID] = {}

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        self._service.prepare(connection, claimed)

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        if claimed.task != Task.JOIN_INSTANCE:
            return self._service.handle(claimed, connections)
        if self._interrupted.get(claimed.instance_id) == claimed.claim_id:
            return Verdict.RELEASE
        self._interrupted.pop(claimed.instance_id, None)
        outcome = None
        try:
            outcome = self._service.handle(claimed, connections)
        finally:
            if outcome not in _DONE:
                self._interrupt(claimed)
        return outcome

    def close(self) -> None:
        self._service.close()

    def _interrupt(self, claimed: ClaimedMessage) -> None:
        while len(self._interrupted) >= _REMEMBERED:  # of instances that never came back
            self._interrupted.pop(next(iter(self._interrupted)), None)
        self._interrupted[claimed.instance_id] = claimed.claim_id
