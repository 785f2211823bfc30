"""Publishes a request together with the instance subscription for its response (RR-02)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from postroom.agent.direct.direct_batch import DirectBatch
from postroom.agent.routing.matching import Matcher
from postroom.agent.routing.table import RoutingTable
from postroom.errors import BadValue, MessageFailure
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Connection


class AwaitedBatch(DirectBatch):
    """One request. Its instance subscription is created only if the request is routed. ``unit`` and ``digest`` are
    those of a request with an idempotency key; the receipt has the instance that waits."""

    def __init__(
        self,
        host: Host,
        message: Message,
        matcher: Matcher,
        *,
        unit: uuid.UUID,
        digest: bytes | None,
        instance_id: uuid.UUID,
        routing: RoutingTable,
        subscribe: Callable[[Connection], None],
        failure: MessageFailure | None = None,
    ) -> None:
        failures = {} if failure is None else {0: failure}
        super().__init__(host, [message], matcher, unit=unit, digest=digest, failures=failures)
        self._waiting_instance_id = instance_id
        self._routing = routing
        self._subscribe = subscribe

    @property
    def failure(self) -> MessageFailure | BadValue | None:
        """The reason why the request is suspended."""
        return self._suspended.get(0)

    def insert_in_one_statement(self, connection: Connection) -> bool:
        return False

    def match(self, connection: Connection) -> int:
        with self._routing.lock:
            version = super().match(connection)
        if self.failure is None:
            self._subscribe(connection)
        return version

    def build_outcome(self) -> dict[str, Any]:
        return {**super().build_outcome(), "instance_id": str(self._waiting_instance_id)}
