"""A service like an orchestration engine. It is activated, waits, receives in order and completes its instances."""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence

from postroom.errors import ClaimLost
from postroom.filters.expression import Filter
from postroom.hosts import ServiceContext
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.message import Message
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.storage.stored_messages import build_message
from postroom.messagebox.subscriptions import SubscribingService, SubscriptionState, UnconsumedMessage
from postroom.properties import Property

SERVICE = SubscribingService(service_id=uuid.UUID(int=7), name="Collector")


class Collector:
    """Collects the bodies that each instance received. ``step`` may return the outcome of a message instead of its
    completion. ``waits_for`` returns the filter of the instance subscription of a new instance."""

    def __init__(
        self,
        context: ServiceContext,
        *,
        step: Callable[[Collector, ClaimedMessage, Message], Outcome | None] = lambda service, claimed, message: None,
        waits_for: Callable[[Message], Filter] | None = None,
        size: int | None = None,
    ) -> None:
        self.context = context
        self.received: defaultdict[uuid.UUID, list[bytes]] = defaultdict(list)
        self.left: dict[uuid.UUID, list[UnconsumedMessage]] = {}
        self.at_the_same_time = 0
        self._step = step
        self._waits_for = waits_for
        self._size = size
        self._busy: set[uuid.UUID] = set()
        self._lock = threading.Lock()

    def enlist(self, filter: Filter, *, convoy: Sequence[Property] = ()) -> None:
        """Create and start an activation subscription, with the login of the host."""
        with self.context.connect() as connection, connection.transaction():
            made = self.context.subscriptions.activate(connection, SERVICE, filter, convoy=convoy)
            self.context.subscriptions.set_state(connection, made, SubscriptionState.STARTED)

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        pass

    def handle(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        message = build_message(claimed, connections)
        with self._lock:
            self.at_the_same_time += claimed.instance_id in self._busy
            self._busy.add(claimed.instance_id)
        try:
            outcome = self._step(self, claimed, message)
            if outcome is None:
                left = transaction(connections.get_writing(), lambda it: self._receive(it, claimed, message))
                # The message counts as received after the commit.
                assert message.body is not None
                self.received[claimed.instance_id].append(message.body.data)
                if left is not None:
                    self.left[claimed.instance_id] = left
        except ClaimLost:
            return Disposition.DISCARD
        finally:
            with self._lock:
                self._busy.discard(claimed.instance_id)
        return outcome or Disposition.FINISHED

    def _receive(
        self, connection: Connection, claimed: ClaimedMessage, message: Message
    ) -> list[UnconsumedMessage] | None:
        """Complete the message. After the last one, complete the instance and return its unconsumed messages."""
        instance = claimed.instance_id
        if self._waits_for is not None and instance not in self.received:
            self.context.subscriptions.wait(connection, SERVICE, instance, self._waits_for(message))
        self.context.queues.complete_message(connection, claimed)
        if len(self.received.get(instance, ())) + 1 != self._size:
            return None
        return self.context.subscriptions.complete(connection, instance)

    def close(self) -> None:
        pass
