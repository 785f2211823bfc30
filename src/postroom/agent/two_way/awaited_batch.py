"""Publishes a request together with the instance subscription for its response (RR-02)."""

from __future__ import annotations

import uuid
from typing import Any

from postroom.agent.direct.direct_batch import DirectBatch
from postroom.agent.routing.matching import Matcher
from postroom.errors import BadValue, MessageFailure
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.connection import Condition, Connection


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
        response_wait: Condition,
        failure: MessageFailure | None = None,
    ) -> None:
        failures = {} if failure is None else {0: failure}
        super().__init__(host, [message], matcher, unit=unit, digest=digest, failures=failures)
        self._waiting_instance_id = instance_id
        self._response_wait = response_wait

    @property
    def failure(self) -> MessageFailure | BadValue | None:
        """The reason why the request is suspended."""
        return self._suspended.get(0)

    def match(self, connection: Connection) -> int:
        version = super().match(connection)
        self.condition = self._response_wait if self.failure is None else None
        return version

    def build_outcome(self) -> dict[str, Any]:
        return {**super().build_outcome(), "instance_id": str(self._waiting_instance_id)}
