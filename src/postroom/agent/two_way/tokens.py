"""Tokens of requests: a request and its response carry the same one (RR-02, RR-03)."""

from __future__ import annotations

import os
import socket
import uuid
from datetime import timedelta

from postroom.message import Context
from postroom.messagebox.connection import Connection
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.system_properties import BTS

#: Responses come before other messages, because a caller waits.
_RESPONSE_PRIORITY = 1


def build_token(instance_id: uuid.UUID) -> str:
    """Return the token of a request that this process waits for. The response is routed to the instance."""
    return f"Svr:{socket.gethostname()};PID:{os.getpid()};RRUid:{instance_id}"


def add_token(context: Context, token: str) -> Context:
    """Return the context of a request with its token."""
    return (
        context.promote(BTS.EpmRRCorrelationToken, token)
        .promote(BTS.CorrelationToken, token)
        .promote(BTS.RouteDirectToTP, None)  # only a response is routed to the caller
        .write(BTS.IsRequestResponse, True)
    )


def wait_for_response(
    connection: Connection,
    subscriptions: ServiceSubscriptions,
    service: SubscribingService,
    instance_id: uuid.UUID,
    *,
    for_host_instance: int | None = None,
    kept_for: timedelta | None = None,
) -> None:
    """Create the instance subscription for the response, in the transaction that publishes the request."""
    subscriptions.wait(
        connection,
        service,
        instance_id,
        (BTS.EpmRRCorrelationToken == build_token(instance_id)) & (BTS.RouteDirectToTP == True),  # noqa: E712
        priority=_RESPONSE_PRIORITY,
        request_response=True,
        for_host_instance=for_host_instance,
        kept_for=kept_for,
    )
