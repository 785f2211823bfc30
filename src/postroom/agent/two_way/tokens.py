"""The tokens of requests that wait in this process, and the subscriptions for their responses (RR-02).

Whoever knows the token of a request can answer it. So a token is random, and not derived from the id of the instance
that waits, which all hosts can read. It is in the request, for its receivers, and in the correlation values of the
subscription, which no host can read.
"""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta

from postroom.correlation_tokens import build_response_filter
from postroom.messagebox.connection import Condition
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService

#: Responses come before other messages, because a caller waits.
_RESPONSE_PRIORITY = 1


def create_token() -> str:
    """Return a new token for a request of this process."""
    return f"Svr:{socket.gethostname()};PID:{os.getpid()};RRUid:{uuid.uuid4()}"


def build_response_wait(
    subscriptions: ServiceSubscriptions,
    service: SubscribingService,
    instance_id: uuid.UUID,
    token: str,
    *,
    for_host_instance: int | None = None,
    kept_for: timedelta | None = None,
) -> Condition:
    """Return the condition that creates the instance subscription for the response, as the request is published."""
    return subscriptions.build_response_wait(
        service,
        instance_id,
        build_response_filter(token),
        priority=_RESPONSE_PRIORITY,
        for_host_instance=for_host_instance,
        kept_for=kept_for,
    )
