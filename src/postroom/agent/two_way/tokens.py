"""The tokens of requests that wait in this process, and the subscriptions for their responses (RR-02)."""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta

from postroom.correlation_tokens import add_token, build_response_filter
from postroom.message import Context
from postroom.messagebox.connection import Condition
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService

#: Responses come before other messages, because a caller waits.
_RESPONSE_PRIORITY = 1


def add_own_token(request: Context, instance_id: uuid.UUID) -> Context:
    """Return the context of a request of this process with its token. The response is routed to the instance."""
    return add_token(request, _build_token(instance_id))


def _build_token(instance_id: uuid.UUID) -> str:
    return f"Svr:{socket.gethostname()};PID:{os.getpid()};RRUid:{instance_id}"


def build_response_wait(
    subscriptions: ServiceSubscriptions,
    service: SubscribingService,
    instance_id: uuid.UUID,
    *,
    for_host_instance: int | None = None,
    kept_for: timedelta | None = None,
) -> Condition:
    """Return the condition that creates the instance subscription for the response, as the request is published."""
    return subscriptions.build_response_wait(
        service,
        instance_id,
        build_response_filter(_build_token(instance_id)),
        priority=_RESPONSE_PRIORITY,
        for_host_instance=for_host_instance,
        kept_for=kept_for,
    )
